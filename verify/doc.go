// Package verify checks a whole log: every object of the chain from the floor on, every
// segment, seal, manifest, page, file, pin and lock. It reports what is missing or damaged,
// with its key and a remedy.
//
//	report, err := verify.Run(ctx, st, nil)
//	if err == nil && !report.OK() {
//		for _, p := range report.Problems { fmt.Println(p) }
//	}
//
// # What it guarantees
//
//   - It reads every byte that a reader could be given. It checks every checksum, slot,
//     offset and link from one object to the next.
//   - It changes nothing, unless Options.Repair is set.
//   - It may run beside writers and compactors. Whatever seems wrong is checked again by
//     the newest manifest before it is called a problem.
//   - Every live file of the table is there, with its size and its content. The table names it
//     once, and no compactor is about to delete it.
//   - The same holds for what else is promised: pinned versions, and older versions above
//     the prune mark, with all that they refer to.
//   - Its memory is bounded, whatever objects claim to be, except for names: some 200
//     bytes for each file, segment and leadership.
//
// [RunGroup] does the same for a group of workers: its own objects, and the log of each partition. What it
// cannot find is in docs/groups.md.
//
// # What it does not do
//
//   - It cannot tell a record that was lost from one that never came, where nothing says
//     that it was acknowledged: at the end of the chain, after the hint. A leader that is
//     killed leaves gaps there. In the same way it cannot tell that a newest manifest, a
//     pin or a lock was removed, unless something else in the log says that it was there.
//     If the removal of a newest manifest has lost anything, that is found.
//   - It does not read what nobody needs: folded objects, and void ones after a seal. It
//     counts them.
//   - It sees lifecycle rules of the bucket only if the store tells them and access is
//     granted, as on S3. Elsewhere it sees what they have done: objects are missing.
//   - It repairs nothing that it would have to guess. A wrong hint needs no repair: openers
//     read from the floor instead, and the next checkpoint of a writer replaces it. What
//     nobody names, a compactor deletes.
package verify
