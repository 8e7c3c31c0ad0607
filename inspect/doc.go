// Package inspect looks at a log from outside: which objects it has, what its newest manifest says, where it ends, and
// what is not folded.
//
//	l, err := inspect.Open(ctx, st, nil)
//	look, err := l.Look(ctx, nil)
//	fmt.Println(look.End, "records,", look.End-look.FloorOffset, "of them not folded")
//
// It is for programs that watch, check or copy logs, such as the command line. Those that use the records of a log
// need package reader; who leads a log is for [leader.Elector.Leader] to say, with the prefix of [Lock].
//
// # What it guarantees
//
//   - It writes nothing, not even a pin. The right to read the log is all that it needs.
//   - What a [State] says was true when it was read: it is the newest manifest, never an older one than this Log has
//     returned before.
//   - The end that a [Look] has found is the end of the chain, as a new leader would find it: no object that pruning,
//     or a leader that was deposed, has left somewhere is taken for a part of the log.
//
// # What it does not do
//
//   - It keeps nothing from being deleted: what a State names may be gone a grace period later. Use a pin.
//   - It does not check the log: see package verify.
//
// [leader.Elector.Leader]: https://pkg.go.dev/github.com/fencepost/fencepost/leader#Elector.Leader
package inspect
