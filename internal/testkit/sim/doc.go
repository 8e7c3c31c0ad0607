// Package sim makes whole histories of a log and checks them.
//
// The real packages, unchanged, run in a testing/synctest bubble on a simulated
// store, with simulated clocks. Every request to the store waits until the
// scheduler says what becomes of it, and so does every timer and every step of a
// client. The scheduler does one thing at a time: it lets a request take effect,
// answers it, loses its reply, lets it land much later or twice, fires a timer,
// crashes or pauses a node, bends its clock. Then it waits until nothing moves any
// more. So a history is a list of acts, and the same acts give the same history.
//
// [Run] draws the acts from a seed, [Shrink] repeats them, leaves some out and finds
// a shorter history that breaks the same promise, and [Explore] goes through all
// schedules of a small scenario.
//
// What is random in the code under test (nonces, UUIDs) becomes a number that rises,
// since who looks at several objects looks at them in the order of their names. It is
// masked in the names by which the scheduler knows requests. Jitter is replaced, since
// it decides when timers fire.
//
// Besides what its clients are told, a history knows what is in the store: which pins
// hold, whatever their holders believe, so that nothing they protect is deleted; and
// in the end, with all pins taken away and all that is under way landed, that exactly
// what the newest manifest names is left.
package sim
