// Package kubelock connects Fencepost with the leader election of Kubernetes controllers.
//
// A [Lock] is client-go's resourcelock.Interface over an object store. So a controller takes its
// lock from a bucket and is otherwise unchanged: it needs no API server for the election, and the
// candidates may run in several clusters.
//
//	lock, err := kubelock.New(st, "orders", nil)
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		Callbacks: leaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) {
//				token, err := lock.Token(ctx) // for a writer, a register, or fence.Gate
//			},
//			OnStoppedLeading: func() {},
//		},
//	})
//
// With controller-runtime, set manager.Options.LeaderElectionResourceLockInterface to the lock.
//
// [LeaseToken] is for controllers that keep their Lease in the API server: it makes a fence.Token
// from that.
//
// A program without client-go uses package leader instead. That waits for the work to end before
// it frees the lock, and ends the work before the lease ends.
//
// # What a Lock guarantees
//
//   - Each term has an epoch, which [Lock.Token] returns. Each term's epoch is greater than those
//     of all terms before it. No clock decides that.
//   - One term has one epoch. client-go may lose the lock, win it again, and go on as if nothing
//     had happened. The lock refuses that, so client-go ends the term and starts a new one.
//   - A restarted process gets a new epoch, also if it has the identity of the old one.
//   - A lock overwrites only the record that its caller read last. It frees only its own record.
//     client-go's release reads the record and frees it without a look at its holder.
//   - A write whose outcome is unknown never counts as won, and never as refused.
//
// # What it does not guarantee
//
// It does not make client-go safer than it is. Two processes may believe at the same time that
// they lead: after a pause, with a slow network, or because ReleaseOnCancel frees the lock while
// the work still runs. Only the place that receives a write can refuse the old leader. Give it the
// token.
//
// # Objects
//
// A lock has two objects. NAME.lease.json is the record, with the fields of client-go's
// LeaderElectionRecord, an epoch, and whatever other fields somebody has added. NAME.epoch.json is
// a register that remembers the highest epoch. So epochs go on when one of the two is deleted,
// while leaderTransitions begins again at 0 when the record is deleted. If both are deleted, epochs
// begin again at 1, and places that remember a higher one refuse the new leaders. Never let a
// lifecycle rule delete them.
//
// # Cost
//
// A leader sends one PUT each RetryPeriod, and a candidate one GET. To win costs a GET and two PUTs
// more.
package kubelock
