// Command dist makes what a release offers for download, in a folder: archives, packages for Debian
// and Fedora, a container image, and lists of what is in each program. The same tree and the same
// version of Go give the same bytes.
//
//	go run ./dist -version v0.1.0 -out ../../dist
//
// It needs no daemon and no tool besides Go. It publishes nothing. make release
// adds checksums and their signature.
//
// GoReleaser has the same archives and packages as a configuration. It compiles 1,785 packages first, for some 15 minutes
// of processor time, which CI does not have, and its images need a registry or Docker's daemon.
package main
