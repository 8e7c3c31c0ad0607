// Package writer appends to a log as its only writer.
//
// # Guarantees
//
//   - A record whose Append returned nil is part of the history for ever, at the offset
//     returned.
//   - Once [Open] has returned for a later epoch, no writer of an earlier one commits
//     anything, however long it slept and whatever it believes. The slot of its next object
//     is taken: the store answers 412.
//   - An append that is not acknowledged says whether it is certainly not committed
//     ([ErrNotCommitted]) or may be ([ErrUnknown]).
//   - One append is one atom, with its cursor.
//   - In the steady state a commit costs one PUT, and no GET, LIST or HEAD. (Late
//     requests are sent twice: up to 5 % more PUTs, 20 % more while later objects overtake
//     them, and up to two GETs for each of those.)
//   - Files and what refers to them share the log. [Writer.CreateFile] streams a large object
//     to the store. [Writer.CommitFiles] adds and removes such files in one atom, in order
//     with the records.
//
// None of this depends on a clock. A writer needs a token with a rising epoch. Package leader
// hands them out, and so can anything else that counts upwards.
//
// # What it does not do
//
// It does not elect: two writers that open in turns fence each other, which is safe and
// useless. It does not know whether a record was appended before: store a [Cursor] with the
// records, and resume from [Writer.Recovered].
package writer
