// Package s3store keeps objects in an S3 bucket, on S3 itself or on any server
// that speaks its protocol with conditional writes.
//
// # What it guarantees
//
// Every method makes one attempt: the SDK's retries are off, also for a client
// that the caller configured otherwise, because a retry hides what became of the
// attempt before it. Package store has the one loop that tries again. Only the
// parts of a large upload are sent again here: they are named by number and
// nobody sees them before completion. (Below, net/http sends a read again when it
// finds a kept connection dead; a write it does not.)
//
// Answers are classified by HTTP status first and error code second, since
// proxies and servers lose codes. What does not tell an outcome is left unknown:
// timeouts, resets, 409, 429 and 5xx.
//
// A large upload whose completion got no answer is settled by looking at the key
// before its parts are given up, and parts that cannot be removed are named in
// the error and in the log.
//
// # What it does not guarantee
//
// That the server keeps the conditions: package probe asks it. That nothing
// else deletes objects: bucket lifecycle rules do. An upload whose first reply
// was lost leaves an empty multipart upload behind, which holds no data; a
// lifecycle rule for incomplete uploads removes it.
//
// Keys that package store would not accept, such as the "folder" markers that
// consoles make, are left out of listings.
//
// # URLs
//
//	s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1
//
// Credentials, region and endpoint come from the usual AWS environment:
// AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3 and the rest.
// The parameters:
//
//	endpoint               another server than AWS: http://127.0.0.1:9000
//	region                 default AWS_REGION or the profile's; us-east-1 with an endpoint
//	profile                of the shared AWS configuration
//	path-style             true or false; default true with an endpoint
//	checksum               crc32c (default), crc32 or none
//	etag                   quoted (default) or unquoted, which Ceph's RGW needs
//	sse, sse-kms-key-id    AES256, aws:kms or aws:kms:dsse, and the key
//	request-payer          requester
//	expected-bucket-owner  the account that must own the bucket
//	part-size              of large uploads, in bytes
package s3store
