// Command mutants deletes the guards from the code, one at a time, and runs the tests. A
// guard whose deletion no test notices is not tested. The code without one guard is a
// mutant, and a test that fails on it kills the mutant.
//
// A guard is a comment that begins a line with "guard:" and its name. One sentence after the
// name states the rule. The counterexample stands with the test that fails without the guard: a
// paragraph in the test's comment or body that begins with the same name, and says what
// happens "Without" it. For a test that plays scripts, TestScripts, it may be a remark in
// testdata/NAME.txt. -doc writes docs/guards.md from both.
//
// What costs only time or money without it begins with "tuning:" instead. It needs no
// counterexample, and is taken out only with -tuning.
//
// The place of the comment says what is deleted:
//
//   - before an if, or first in the body of an if or a case: the condition becomes
//     false;
//   - before an operand of && in an expression: the operand becomes true;
//   - anywhere else the comment needs a line of its own after it,
//     "//mutant:replace OLD => NEW". It replaces the first OLD between the comment and
//     the end of the function. With nothing after the arrow, OLD is deleted. Several such
//     lines make one mutant together.
//
// The mutant is compiled with go test -overlay, so no file of the tree changes. Tests run
// until one fails: first the one that tells the counterexample, alone, then those of the
// guard's own package, then those of the packages that use it, then -seeds histories of the
// simulation. A test that hangs kills nothing; the others run again without it. A test
// that also fails with all guards in place kills nothing either; then the mutant counts as
// not tried. The output has a row for each guard, with the test that killed the mutant. At
// the end it lists the guards that another test than the named one has killed. The exit
// status is 1 if a mutant survived or could not be tried.
//
// With -budget the command tries mutants in random order for about that time, and with
// -share 2/8 the second eighth of them.
//
//	go run ./internal/test/mutants [-list] [-tuning] [-run REGEXP] [-share K/N] [-p N] [-budget 100s]
package main
