// Package lease is the election's state machine: (event, now) → what to do
// next. It is pure: no I/O, no goroutines, no clock and no randomness of its
// own. The same events at the same instants give the same actions, so every
// interleaving can be written down as a script; testdata holds them as stories.
//
// [Candidate] runs from "who is the newest?" to a confirmed win, or watches for
// ever. [Leader] runs from the win to the released or lost lock. Package leader
// carries their actions out on a store and feeds the outcomes back.
//
// An action is carried out to its end before the next event, except that a
// Leader may be told of anything while its one write is under way.
package lease
