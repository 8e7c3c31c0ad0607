// Package probe tests whether a live bucket keeps the promises that Fencepost needs, before
// the bucket is first used. Some stores ignore a condition silently. Others check it first
// and write afterwards, in two steps. On both, two leaders overwrite each other and nobody
// is told.
//
// The probe creates keys that are free and keys that exist. It swaps current versions,
// stale versions and missing keys. It reads and lists after each write, and races many
// creators and swappers over separate clients. A store that breaks a promise gets an
// [*Error], which is [ErrRefused]: it names the promise, what was seen, and what to do.
//
// A store that only fails now and then is not refused. A lost answer counts for nothing,
// and in the end the bytes under the key decide. A store that fails so often that nothing
// can be told is [ErrInconclusive]. A store that denies access, or has no such bucket,
// gives that error.
//
// The probe does not prove atomicity: it only finds no violation in thousands of tries. A store
// that ignores If-None-Match, or If-Match, once in 500 requests is refused with a probability of
// 9 in 10; one whose listings lack a key once in 200 with more than 99 in 100. It tells nothing
// about durability.
//
// Everything it writes has names of the form tmp/<uuid>. It deletes them at the end, even
// after a failure.
//
//	report, err := probe.Run(ctx, st, &probe.Options{Open: another})
//	if errors.Is(err, probe.ErrRefused) { … }
//	fmt.Println(report)
package probe
