// Command reference writes the pages of docs/ that only repeat what the code says: options.md
// from the comments of the options, and messages.md from the calls of the loggers. A test
// compares the pages with the code.
//
//	go run ./internal/testkit/reference
package main
