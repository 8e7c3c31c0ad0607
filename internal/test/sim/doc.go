// Package sim makes complete histories of a log and checks them.
//
// A history runs the real packages, unchanged, in a testing/synctest bubble. The store
// and the clocks are simulated. Each request to the store waits until the scheduler
// decides what happens to it. Timers and the steps of clients wait for the scheduler too.
//
// The scheduler does one thing at a time, an act. It can apply a request, answer it, lose
// its reply, or let it land much later or twice. It can fire a timer, crash or pause a
// node, or change a node's clock. Then it waits until every goroutine is blocked. So a
// history is a list of acts, and the same acts give the same history.
//
// [Run] draws the acts from a seed. [Shrink] repeats the acts of a broken history, leaves
// some out, and finds a shorter history that breaks the same promise. [Explore] runs all
// schedules of a small scenario.
//
// Random values in the code under test (nonces, UUIDs) become rising numbers. Code that
// handles several objects takes them in the order of their names, so that order must not
// change between runs. The scheduler identifies a request by its key, with the random
// part masked. Jitter is turned off, because it decides when timers fire.
//
// A history is checked against what its clients were told and against what is in the
// store. It knows which pins are valid, whatever their holders believe, and reports every
// deletion of an object that such a pin protects. At the end all late requests land and
// all pins are deleted. Then a last compactor must leave exactly the objects that the
// newest manifest names.
package sim
