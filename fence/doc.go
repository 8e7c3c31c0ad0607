// Package fence holds what stops a zombie: epochs and tokens, the positions of a
// log, and [Gate], which refuses the epochs of deposed leaders in other places than
// a log. It is pure: no I/O, no clock, and it imports nothing of the project.
//
// An [Epoch] numbers leaderships and only rises. An election gives each winner the
// [Token] of its epoch. A log, or any other sink, remembers the highest epoch that
// it has seen and refuses lower ones. So a deposed leader is refused, however long
// it slept.
package fence
