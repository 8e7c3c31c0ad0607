// Package reader reads a log: from any offset, to the end or along with it as it grows.
// It also takes snapshots of the log and its table of files, and makes pins for backups.
//
//	r, err := reader.Open(ctx, st, nil)
//	for rec, err := range r.Tail(ctx, next) {
//		if err != nil { return err }
//		…
//		next = rec.Offset + 1 // keep it where the results are
//	}
//
// # Guarantees
//
// All readers, in all processes, see prefixes of the same sequence of records. Each
// record is delivered once, in order, at the offset that its writer was told. A slow
// reader misses nothing while the log around it is folded, merged and pruned: the
// segments hold the same records at the same offsets. Only records that retention has
// deleted are gone, and the error ([GoneError]) says where the log begins now.
//
// A reader takes no lock and writes nothing, except for pins and the positions of consumers. A tailing reader of an idle
// log makes at most one request a second. While records come, it fetches ahead, within
// Options.Prefetch. It finds a record of a large segment with two requests.
//
// A snapshot ([Reader.Snapshot]) is the log at one moment: its records, its live files,
// its properties, the producer's cursor. A pin in the store keeps what it refers to until
// it is closed. If the pin is lost, the snapshot says so; what was read before stays right.
//
// # What it does not do
//
// It does not remember its position by itself. Keep the offset of the next record where the
// results are, in one transaction with them if no record may be processed twice. Where there
// is no such place, [Reader.Consumer] keeps a position under a name, and each record is
// processed at least once. Consumer groups are out of scope: package leader can elect the
// process that reads.
package reader
