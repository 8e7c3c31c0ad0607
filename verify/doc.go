// Package verify checks a whole log: every object of the chain from the floor
// on, every segment, every seal, the manifests, the locks; and names what is
// missing, damaged or out of line, with its key and a remedy.
//
//	report, err := verify.Run(ctx, st, nil)
//	if err == nil && !report.OK() {
//		for _, p := range report.Problems { fmt.Println(p) }
//	}
//
// # What it guarantees
//
//   - It reads every byte that a reader of the log could be given, and checks
//     every checksum, sequence number, offset and link from one object to the
//     next.
//   - It changes nothing.
//   - It may run beside writers, compactors and pruners: whatever looks wrong is
//     judged again by the newest manifest before it is called a problem.
//   - Every live file of the table is there with its size. What is in it, it does
//     not read.
//   - What pinned versions refer to is checked likewise: their segments are read,
//     their files are there with their size.
//   - Its memory is bounded, whatever objects claim to be, but for the names: some
//     200 bytes for each file, segment and leadership.
//
// # What it does not do
//
//   - It cannot tell a record that was deleted from one that never came, where
//     nothing says that it was acknowledged: at the end of the chain, beyond the
//     last hint in the manifest. A leader that was killed leaves gaps there by
//     right.
//   - It does not read what is dead: objects behind the floor, and void ones
//     behind a seal. They are counted.
//   - It sees rules of the bucket that delete objects (lifecycle rules) only where the
//     store tells them and its caller may read them, as on S3; elsewhere only what they
//     have done: seals, manifests and locks that are missing.
//   - It repairs nothing.
package verify
