// Package s3stub is an S3 endpoint inside the process, for tests and
// benchmarks.
//
// It keeps objects in memory and speaks enough of S3 over path-style URLs for
// Fencepost and for any SDK: PUT, GET, HEAD and DELETE of objects, conditional
// writes (If-None-Match: *, If-Match) that hold atomically, conditional and
// ranged reads, ListObjectsV2, DeleteObjects and multipart uploads. It checks
// the checksums that a request carries, but no signatures.
//
// Beyond a real server it has latencies from a seeded distribution ([S3Latency]), counters
// of requests ([Server.Counts]), and a hook that gives any request a fault
// ([Server.SetFault]): a lost answer to a write that was applied, a 409, a 503, a request
// that lands only when the test says so.
//
// It lacks trailing checksums (it answers 501 to aws-chunked bodies, so that a test notices
// them), versions, ACLs and virtual-hosted buckets.
//
//	srv := s3stub.Start(nil)
//	defer srv.Close()
//	srv.SetFault(s3stub.Nth(s3stub.PutObject, 1, s3stub.Fault{Apply: true, Drop: true}))
package s3stub
