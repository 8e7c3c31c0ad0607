// Package leader elects one leader among many processes, over nothing but an
// object store.
//
// # What it does not guarantee
//
// An election alone never makes a zombie harmless. A leader that is paused —
// by its garbage collector, its hypervisor, a closed lid — between its last
// Check and the request that follows may wake up a month later and send that
// request, when others have long led. No lease of any kind can prevent it. What
// must not happen twice needs its epoch checked where it takes effect: package
// writer does it for a log on an object store, [fence.Gate] for other sinks. And
// who can do with optimistic locking (one conditional write), or with one process
// that is restarted when it dies, needs no election at all.
//
// # What it guarantees
//
//   - Epochs are won once and only rise, over release, crash, pruning and clocks
//     that jump. [Term.Token] carries the epoch to where it is checked.
//   - No heartbeat of a deposed leader is applied once a later epoch is
//     confirmed. Neither of these depends on any clock.
//   - With clocks whose rates are right to within Options.ClockRate, no two terms
//     are valid at once by their own leaders' belief. Times of day do not
//     matter, nor how the clocks are set.
//   - A term's context is cancelled at the leader's own deadline by a timer that
//     needs neither the network nor the goroutine that sends heartbeats, and
//     [Term.Check] knows of the deadline also after the machine has slept.
//   - The lock is freed only after the work has ended.
//
// The second holds on stores whose versions are their contents (MD5 ETags) as
// long as the network itself does not send a request twice whose answer was
// heard.
//
// # How it works
//
// Each leadership has a file, lock/<epoch>.json: see [Record]. The leader swaps
// its own file every Options.Renew, one PUT and no GET. A follower that has seen
// the same version for the announced validity, of its own elapsed time, swaps it
// to expired, creates the next number, swaps that once, and makes sure that
// there is none higher. Files are never used again; [Prune] deletes old ones, and
// the leader does so in the background. At the default validity of 15 s a leader
// makes 10 writes a minute, a follower 11 reads, an observer 5.
//
// # If you know another API
//
//	"leader election with Google Cloud Storage"   here
//	block until leader                            Elector.Campaign
//	unlock                                        Term.Resign
//	a channel that closes on loss                 Term.Context().Done()
//	automatic heartbeat                           always, every Options.Renew
//	time to live                                  Options.Validity
//
//	"leader election with S3 conditional writes"  here
//	lock_<n>.json                                 lock/<20 digits>.json
//	epoch as a fencing token                      Term.Token
//	validity_ms, expired                          Record
//	clock skew measured by a temporary object     MeasureSkew
//
//	Kubernetes, client-go leaderelection          here
//	RunOrDie, LeaderCallbacks                     RunCallbacks, Callbacks
//	LeaseDuration                                 Options.Validity
//	RenewDeadline                                 Validity − Margin, always
//	RetryPeriod                                   Options.Renew
//	ReleaseOnCancel                               always, unless Options.NoRelease
//	leaseTransitions                              Record.Transitions; Record.Epoch
//	IsLeader                                      Term.Check
//
//	DynamoDB lock client                          here
//	recordVersionNumber                           the version and Record.Nonce
//	leaseDuration                                 Options.Validity
//	sendHeartbeat                                 Term.Confirm
//
// A leader for each partition is an election for each: a prefix of its own.
package leader
