// Package reader reads a log: from any offset, to its end or along with it as it
// grows; and it takes snapshots of its table, now and as it was.
//
// # Guarantees
//
// All readers see prefixes of one and the same sequence of records, in all
// processes, at all times. A record is delivered once, in order, at the offset
// that its writer was told, also while everything around the reader is folded
// and pruned: falling behind is never an error, the segments hold the same
// records at the same offsets. Only what retention has deleted is gone, and the
// error ([GoneError]) says where the log begins now.
//
// A reader costs the store nothing but its own requests: it takes no lock and
// leaves no trace. At the tail that is at most one request a second while nothing
// comes. It fetches ahead, in parallel, within Options.Prefetch; a record of a large
// segment is found with two requests.
//
//	r, err := reader.Open(ctx, st, nil)
//	for rec, err := range r.Tail(ctx, next) {
//		if err != nil { return err }
//		…
//		next = rec.Offset + 1 // keep it where the results are
//	}
//
// A snapshot ([Reader.Snapshot]) is the log at one moment: its records, its live
// files, its properties, the producer's cursor. A pin in the store keeps what it
// refers to until it is closed. A pin that is lost is told; what was read before
// stays right.
//
// # What it does not do
//
// It does not remember how far it came: keep the offset of the next record where
// the results are, in one transaction with them if they must not come twice.
// Consumer groups are out of scope: which process reads what, and who takes over
// from whom, is for others to say (package leader can elect one).
package reader
