// Package s3stub is an S3 endpoint inside the process, for tests and
// benchmarks.
//
// It keeps objects in memory and speaks enough of S3 over path-style URLs for
// Fencepost and for any SDK: PUT, GET, HEAD and DELETE of objects, conditional
// writes (If-None-Match: *, If-Match) that hold atomically, conditional and
// ranged reads, ListObjectsV2, DeleteObjects and multipart uploads. It checks
// the checksums that a request carries, but no signatures.
//
// What it has and a real server has not: latencies drawn from a seeded
// distribution ([S3Latency]), counters of what was asked ([Server.Counts]), and
// a hook that gives any request a fault ([Server.SetFault]): an answer that is
// lost after the write was applied, a 409, a 503, a request that lands only when
// the test says so.
//
// What it has not: trailing checksums (aws-chunked bodies are answered 501, so
// that a test notices them), versions, ACLs, virtual-hosted buckets.
//
//	srv, err := s3stub.Start(nil)
//	…
//	defer srv.Close()
//	srv.SetFault(s3stub.Nth(s3stub.PutObject, 1, s3stub.Fault{Apply: true, Drop: true}))
package s3stub
