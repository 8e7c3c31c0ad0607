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
// A driver that reads listings in pages is asked for small ones. The store may list in any order, and cut pages short, but each object
// comes once and the listing ends.
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
// On a store that answers within 50 µs, the writes of a race hardly overlap. So there all clients
// also write as fast as they can, for a quarter of a second creates and as long swaps. That
// refuses a store in memory that checks first and writes at once afterwards, or after a copy of the
// body: in 158 of 160 probes with two processors, and in 39 of 80 with GOMAXPROCS=1. Slower stores
// get no more requests for it. Nor do stores whose probe has an Options.Clock that stands still,
// as in a bubble of synctest.
//
// Everything it writes has names of the form tmp/<uuid>. It deletes them at the end, even
// after a failure.
//
//	report, err := probe.Run(ctx, st, &probe.Options{Open: another})
//	if errors.Is(err, probe.ErrRefused) { … }
//	fmt.Println(report)
package probe
