// Package register keeps a small value in one object of a store. Only the epoch that owns the
// object, or a later one, overwrites it. So a zombie never does.
//
//	r, err := register.Open(ctx, st, "latest.json", term.Token(), nil)
//	err = r.Set(ctx, []byte("version 7"))
//
// It is for output that is not a log: a pointer to the newest version of something, a
// watermark, the position of a consumer. Package leader, or anything else that gives out
// rising numbers, says whose turn it is.
//
// # Guarantees
//
//   - When [Open] has returned, no value of an earlier epoch gets in any more, whenever its
//     request arrives. The value that [Register.Value] returns then is the last one before.
//   - The same holds between two holders of one token: the one that has opened later owns it.
//   - A [Register.Set] that has returned nil is the value, until its holder or a later one sets
//     another.
//   - [Read] sees the newest value, whoever has written it.
//
// None of this needs a clock. It needs a store with conditional writes: see package store.
//
// # Outcomes
//
// Set returns nil if the value was written; a fence.FencedError if somebody else owns the
// register, and then it is final; and an error that is store.ErrUnknown if nobody can tell yet. After
// that, and also after it was fenced, the value may have been written: the next owner sees
// it or not. A value that is not acknowledged never replaces one that is.
//
// # Limits
//
// A value has at most [MaxValue] bytes. Open costs a GET and a PUT, Set one PUT. Never delete the object,
// also not by a lifecycle rule: it remembers the epoch. Without it a zombie can open it anew.
package register
