// Package probe asks a live bucket whether it keeps the promises that Fencepost
// is built on, before the first use of the bucket. Stores exist that ignore a
// condition silently, and stores that look first and write afterwards; on both,
// two leaders overwrite each other and nobody is told.
//
// It creates on nothing and on something, swaps with a current version, with a
// stale one and where nothing is, reads and lists after each write, and races
// many creators and many swappers over separate clients. A store that breaks a
// promise gets an [*Error], which is [ErrRefused]: it names the promise, what
// was seen and what to do.
//
// A store that merely fails now and then is not refused. Only answers count, a
// lost one counts for nothing, and what decides in the end is whose bytes are
// under the key. A store that fails so often that nothing can be told is
// [ErrInconclusive]; one that denies access or has no such bucket returns that
// error.
//
// What it does not do: prove atomicity. Races found none in hundreds of tries,
// that is all. It says nothing of durability either.
//
// All it writes has names of the form tmp/<uuid>, and is deleted afterwards,
// also after a failure.
//
//	report, err := probe.Run(ctx, st, &probe.Options{Open: another})
//	if errors.Is(err, probe.ErrRefused) { … }
//	fmt.Println(report)
package probe
