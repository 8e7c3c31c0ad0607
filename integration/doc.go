// Package integration holds the tests that need real servers and real
// processes. They stand behind the build tag integration:
//
//	make integration
//
// Package servers, below, installs and starts the servers; a server that
// cannot be had skips its tests by name, or fails them if CI=true.
package integration
