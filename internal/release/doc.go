// Release makes the tree of a release from a checkout, as docs/releasing.md says. It removes
// from each nested module the replace directives that point into the tree, requires the other
// modules of the project at the version of the release, and notes their checksums. It also
// makes a module proxy of files, to try the release before it is tagged.
//
//	go run . -tree /path/to/checkout -proxy /path/to/new/dir v0.1.0
package main
