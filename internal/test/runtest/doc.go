// Package runtest has processes in fencepost.Run that compete for a log in virtual time. Beside it are the tests of the
// whole: of packages of the root together, or of what a process does in hours and days.
package runtest
