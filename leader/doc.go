// Package leader elects one leader among many processes. All it needs is an
// object store with conditional writes.
//
//	st, err := store.Open(ctx, "s3://bucket/jobs")
//	e, err := leader.New(st, "lock", nil)
//	err = e.Run(ctx, func(ctx context.Context, t *leader.Term) error {
//		// This process leads until ctx ends.
//	})
//
// [Elector.Run] waits until this process leads, runs the work for one term, and
// releases the lock after the work has returned. Call it in a loop to lead again.
// A program may also call [Elector.Campaign] to win and [Term.Resign] to give up;
// Run does both. [Elector.Leader], [Elector.Observe] and [Elector.History] only read:
// they tell who leads and who led.
//
// # What it does not guarantee
//
// An election makes two leaders rare. It cannot make a zombie harmless. A leader
// may be paused right after its last [Term.Check], by its garbage collector or by a
// closed lid. A month later it sends its next request, while others lead. No lease
// prevents that. Where two leaders would do damage, let the place that receives a
// write check its epoch: package writer does so for a log in an object store,
// [fence.Gate] for other sinks.
//
// You may not need an election. If one conditional write does the job (optimistic
// locking), or one process that is restarted when it dies, use that.
//
// # What it guarantees
//
//   - Each epoch is won once, and epochs only rise, even after a release, a crash,
//     pruning or a clock jump. [Term.Token] carries the epoch to the place that
//     checks it.
//   - Once a later epoch is confirmed, no heartbeat of a deposed leader is applied.
//     The first two points depend on no clock.
//   - If the rates of all clocks are right to within 5 %, no two leaders believe at
//     the same time that they lead. The time of day does not matter.
//   - At its leader's own deadline a term's context is cancelled, by a timer that
//     needs neither the network nor the goroutine that sends heartbeats. Term.Check
//     sees the deadline also after the machine was suspended.
//   - The lock is released only after the work has ended.
//
// The second point has one condition on stores whose versions are hashes of the
// contents, such as MD5 ETags: the network must not repeat a request whose answer
// was received.
//
// # How it works
//
// Each term has its own lock file, lock/<epoch>.json, which holds a [Record]. The
// leader swaps its file every Options.Renew: one PUT, no GET. A candidate follows
// the newest file. If that does not change for its validity, measured in the
// candidate's own elapsed time, the lock has lapsed. The candidate then swaps it to
// expired, creates the file of the next epoch, swaps that one once, and lists the
// files to make sure that its own is the newest. Then it leads.
//
// A number is never used for a second term. The leader deletes old files in the
// background: see [PruneOptions].
//
// A candidate notes in candidate.json beside the locks that it waits. A leader that is
// asked to end reads that note. If somebody waits, its lock says so (draining), and it
// leads on until a candidate has seen that and reads the lock often.
//
// At the default validity of 15 s, a leader makes 10 writes a minute, a candidate
// 11 reads, and an observer 5. After a crash nobody leads for about 15 s. After
// Resign nobody leads for less than a second.
//
// For one leader per partition, run one election per partition, each under a
// prefix of its own. To test a program that leads, give it the store of package
// memstore and a virtual clock: see package clock.
//
// # If you know client-go's leaderelection
//
//	RunOrDie                                      Elector.Run
//	OnStartedLeading                              the function given to Run
//	OnStoppedLeading                              a defer in that function
//	OnNewLeader                                   Hooks.Leader
//	LeaseDuration                                 Options.Validity
//	RenewDeadline                                 9/10 of Validity, always
//	RetryPeriod                                   Options.Renew
//	ReleaseOnCancel                               always, after the work has ended
//	leaseTransitions                              Record.Transitions; Record.Epoch
//	IsLeader                                      Term.Check
package leader
