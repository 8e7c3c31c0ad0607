// Package s3store keeps objects in an S3 bucket, on S3 itself or on any server
// that speaks its protocol with conditional writes.
//
// # What it guarantees
//
// Every method makes one attempt. The SDK's retries are off, whatever the client's
// configuration, because a retry hides the outcome of the attempt before; package store
// retries. Only the parts of a large upload are sent again: they have numbers, and nobody
// sees them before the completion. (net/http sends a read again on a dead connection, but
// never a write.)
//
// Answers are classified by HTTP status first and error code second, since proxies and
// servers lose codes. Timeouts, resets, 409, 429 and 5xx are of unknown outcome.
//
// If the completion of a large upload gets no answer, the driver reads the key before it
// deletes the parts. The error and the log name parts that cannot be deleted.
//
// # What it does not guarantee
//
// It cannot know whether the server keeps its conditions: package probe tests that.
// Lifecycle rules of the bucket may delete objects. An upload whose first answer was lost
// leaves an empty multipart upload, which a lifecycle rule for incomplete uploads deletes.
//
// Listings leave out keys that package store does not accept, such as the "folder" markers
// of consoles.
//
// # URLs
//
//	s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1
//
// Credentials, region and endpoint come from the usual AWS environment:
// AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3 and the rest.
// The parameters:
//
//	endpoint             a server that is not AWS: http://127.0.0.1:9000
//	region               default AWS_REGION or the profile's; us-east-1 with an endpoint
//	profile              of the shared AWS configuration
//	path-style           true or false; default true with an endpoint
//	checksum             crc32c (default) or none
//	etag                 quoted (default) or unquoted, which Ceph's RGW needs
//	sse, sse-kms-key-id  AES256, aws:kms or aws:kms:dsse, and the key
//	part-size            of large uploads, in bytes
package s3store
