// Package servers starts real object stores for tests: as processes of their
// own, on 127.0.0.1, at pinned versions, each in a temporary directory.
//
// The suite builds or installs the servers itself, from the Go module proxy and
// the npm registry, into a cache folder: FENCEPOST_SERVERS, by default
// fencepost-servers in the user's cache directory. Any number of test processes
// may do so at once, and an empty cache is as good as a full one, only slower.
//
// What it guarantees: when [Start] returns, the server has answered and its
// bucket exists; when the test ends, however it ends, the server has ended. On
// Linux that includes a test binary that is killed. What it does not: that a
// server keeps its data over [Server.Kill] (see [Kind.Durable]).
//
//	func TestOrders(t *testing.T) {
//		s := servers.Start(t, servers.MinIO)
//		st, err := store.Open(t.Context(), s.URL("orders"))
//		…
//		s.Kill()    // kill -9
//		s.Restart() // same address, same data
//	}
//
// Where a server cannot be had (no network, no npm), the test is skipped by
// name with what is missing, or fails if CI=true: there, nothing may be skipped.
package servers
