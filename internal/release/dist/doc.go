// Command dist makes what a release offers for download, in a folder: archives, packages for Debian
// and Fedora, a container image, and lists of what is in each program. The same tree and the same
// version of Go give the same bytes.
//
//	go run ./dist -version v0.1.0 -out ../../dist
//
// It needs no daemon and no tool besides Go. It publishes nothing. make release
// adds checksums and their signature.
package main
