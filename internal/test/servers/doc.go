// Package servers starts real object stores for tests. They run as processes on
// 127.0.0.1, at pinned versions, each in a temporary directory.
//
// The package builds or installs the servers itself, from the Go module proxy and the npm
// registry, into a cache folder. That is FENCEPOST_SERVERS, by default fencepost-servers
// in the user's cache directory. Several test processes may do so at once. An empty cache
// works too, but takes minutes.
//
// Guarantees: when [Start] returns, the server has answered and its bucket exists. When
// the test ends, in whatever way, the server has ended. On Linux that includes a test
// binary that is killed. Not guaranteed: that a server keeps its data after [Server.Kill]
// (see [Kind.Durable]).
//
//	func TestOrders(t *testing.T) {
//		s := servers.Start(t, servers.VersityGW)
//		st, err := store.Open(t.Context(), s.URL("orders"))
//		…
//		s.Kill()    // kill -9
//		s.Restart() // same address, same data
//	}
//
// If a server is not available (no network, no npm), the test is skipped and names what
// is missing. With CI=true the test fails instead.
package servers
