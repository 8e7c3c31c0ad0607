// Package gcsstore keeps objects in a bucket of Google Cloud Storage, through
// its JSON API.
//
// # What it guarantees
//
// A version is an object's generation. A create is a write with
// ifGenerationMatch=0, a swap one with ifGenerationMatch=<version>.
//
// Every method makes one attempt; package store retries. A Put is one request, whatever the
// size of its body. The SDK's upload in chunks is off for it, since its retries can answer a
// write with 412 because of that same write (T35).
//
// Only an Upload of more than Options.ChunkSize is sent in chunks, and the SDK sends lost
// chunks again. If its outcome is unknown, the driver reads the object, which must have the
// size and the CRC-32C of what was sent.
//
// Answers are classified by HTTP status first and reason second. Timeouts, resets, 408,
// 409, 429, 5xx, and the 403 that means "too many requests", are of unknown outcome. Bodies
// are sent with their CRC-32C, and it is checked when a whole object is read. Every
// answer but an object is cut at 8 MiB.
//
// Google Cloud Storage takes about one write per second for one key (T34). Traits says so,
// and package leader heartbeats no faster. Log objects have a new key each time, so they
// have no such limit.
//
// # What it does not guarantee
//
// Lifecycle rules of the bucket may delete objects. An interrupted upload leaves an
// invisible session, which the service deletes after a week. Listings leave out keys that
// package store does not accept, such as the "folder" markers of consoles.
//
// # URLs
//
//	gs://bucket/prefix?endpoint=http://127.0.0.1:4443
//
// Credentials are the application default ones: GOOGLE_APPLICATION_CREDENTIALS,
// those of gcloud auth application-default login, or the service account of the
// machine. The parameters:
//
//	endpoint    another service than Google's: http://127.0.0.1:4443
//	anonymous   true: send no credentials; always so if the endpoint is plain http
//	chunk-size  of large uploads, in bytes
package gcsstore
