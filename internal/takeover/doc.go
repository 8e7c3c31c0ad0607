// Package takeover opens an epoch of a log: [Run] finds the tail and puts the epoch's seal
// there. After that no writer of an earlier epoch commits anything.
//
// The process that calls Run is the opener. It reads the newest manifest and walks the chain,
// from the hint or the floor to the first empty slot. It creates its seal in that slot and
// reads the manifest again. If the floor has passed the slot, the slot was a hole, and the
// opener begins again.
//
// A leader that is alive can make this endless in two ways. Each has a remedy:
//
//   - The leader wins every race for the next empty slot. The opener then sends many seals
//     at once to slots that the leader has not reached: a wall.
//   - The leader appends faster than the opener reads. While it reads, the opener puts one
//     seal far ahead of its walk: a backstop.
//
// Wall and backstop end an epoch that is before the opener's own, so a leader that
// they stop is deposed already.
package takeover
