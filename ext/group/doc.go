// Package group shares partitions among workers. Each partition has one owner and a token
// that rises with every opening, and so a fenced log, table or sink of its own. All it needs is an
// object store with conditional writes. It costs one heartbeat for each worker, whatever the
// number of partitions.
//
//	g, err := group.Join(ctx, st, &group.Options{Partitions: 64})
//	err = g.Run(ctx, func(ctx context.Context, p *group.Partition) error {
//		// This process owns partition p.Number() until ctx ends.
//	})
//
// [Join] makes this process a member. [Group.Run] calls the work once for each partition that the member
// owns, in a goroutine of its own, and again after a failure. It leaves in good order when its
// context ends. [Observe] only reads. To keep a log for each partition, use group.Run.
//
// # What it guarantees
//
//   - Every later owner of a partition has a greater token, and so has each opening by the
//     same owner. A log that is opened with it seals the one before, and refuses lower tokens.
//     This needs no clock.
//   - If the rates of all clocks are right to within Options.ClockRate, no two members believe at
//     the same time that they own a partition. The time of day does not matter.
//   - After a crash every partition has an owner again in a little more than a
//     validity. After a graceful end the old owner works on until the new one is ready.
//   - Shares are fair by weight, and no partition moves that need not.
//   - At its member's own deadline all contexts end, by a timer that needs neither the
//     network nor the goroutine that sends heartbeats.
//
// # What it does not guarantee
//
// A process can be paused right after a check, and go on a month later. No lease prevents that, so
// send the token with each write, to a place that checks it: package writer does so for a
// log, fence.Gate for other sinks.
//
// # How it works
//
// A member's object is rewritten every Renew. The first live member in the order of the newest
// assignment organises: it lists all objects every Renew, swaps the objects of members that show no sign
// of life to expired, and creates the next numbered assignment. An assignment says who
// owns each partition, and who may still work on it. A new owner waits until each of these has acknowledged
// that it has stopped, or is expired. docs/groups.md tells more.
package group
