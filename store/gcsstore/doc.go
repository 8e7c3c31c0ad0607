// Package gcsstore keeps objects in a bucket of Google Cloud Storage, through
// its JSON API.
//
// # What it guarantees
//
// A version is an object's generation. A create is a write with
// ifGenerationMatch=0, a swap one with ifGenerationMatch=<version>.
//
// Every method makes one attempt. A Put is one request, whatever the size of its
// body: the SDK's retries are off, and so is its chunked upload, which has
// retries of its own that answer one's own write with 412 when a reply was lost
// (T35). The transport refuses a second request where there may be only one.
// Package store has the one loop that tries again. Only a body of more than
// Options.ChunkSize that is given to Upload is sent in chunks, and the SDK sends
// a chunk again; what became of the whole is settled by looking at the object,
// which must have the size and the CRC-32C of what was sent.
//
// Answers are classified by HTTP status first and reason second. What does not
// tell an outcome is left unknown: timeouts, resets, 408, 409, 429 and 5xx, and
// the 403 that means "too many requests". Bodies are sent with their CRC-32C, and
// the SDK checks that of an object that is read whole. No answer but an object is
// read past 8 MiB.
//
// Google Cloud Storage takes about one write a second for one name (T34);
// Traits says so, and package leader takes its heartbeat from there. The log's
// own objects are new names each time and have no such limit.
//
// # What it does not guarantee
//
// That nothing else deletes objects: lifecycle rules of the bucket do. That an
// upload which broke off leaves nothing at all: a resumable session that was
// begun stays, invisible, until the service drops it after a week. Keys that
// package store would not accept, such as the "folder" markers that consoles
// make, are left out of listings.
//
// # URLs
//
//	gs://bucket/prefix?endpoint=http://127.0.0.1:4443
//
// Credentials are the application default ones: GOOGLE_APPLICATION_CREDENTIALS,
// those of gcloud auth application-default login, or the service account of the
// machine. The parameters:
//
//	endpoint      another service than Google's: http://127.0.0.1:4443
//	anonymous     true: send no credentials; always so if the endpoint is plain http
//	user-project  the project that pays for requests
//	chunk-size    of large uploads, in bytes
package gcsstore
