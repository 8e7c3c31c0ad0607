// Command mutants takes the guards out of the code, one at a time, and runs the
// tests: one that nobody misses is not a guard.
//
// A guard is a comment that begins a line with "guard:" and its name. What is
// taken out follows from where the comment stands:
//
//   - before an if, or first thing in the body of an if or a case: its condition
//     is false;
//   - before an operand of && in an expression: the operand is true;
//   - anywhere else the comment says so itself, in a line of its own behind it:
//     "//mutant:replace OLD => NEW" replaces the first OLD that follows, up to the
//     end of the function; with nothing behind the arrow it is deleted. It may stand
//     several times, then all are replaced in one mutant.
//
// The mutant is compiled with go test -overlay; the tree is not touched. First the
// tests of the guard's own package run, then those of the packages that use it, then
// -seeds histories of the simulation, until a test fails. One that hangs kills
// nothing: it is left out, and the others run again. Neither do tests that fail with
// all guards in place: then the mutant counts as not tried. Each guard has a row that
// says which test missed it. Exit status 1: a mutant survived, or could not be tried.
//
// With -budget, mutants are taken in random order for about so long.
//
//	go run ./internal/testkit/mutants [-list] [-run REGEXP] [-p N] [-budget 100s]
package main
