// Package integration holds the tests that need real servers and real processes. They
// have the build tag integration:
//
//	make integration
//
// Package servers, below, installs and starts the servers. If a server is not available,
// its tests are skipped by name; with CI=true they fail. The chaos suite exists only on Linux.
package integration
