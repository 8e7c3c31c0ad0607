package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// advice returns what to do about an error, or what is to be done otherwise.
func (x *examination) advice(err error, otherwise string) string {
	switch {
	case errors.Is(err, fence.ErrFormat):
		return "upgrade this program"
	case errors.Is(err, manifest.ErrFiles) && x.given():
		return "leave out --files if the log keeps its files in its own store; otherwise check the URL after it"
	case errors.Is(err, manifest.ErrFiles):
		return "give the URL of the store for files with --files"
	case errors.Is(err, store.ErrDenied):
		return "check the credentials: the policy `doctor` of docs/policies.md has the rights that doctor needs"
	}
	return otherwise
}

// badLock notes that the newest lock cannot be read.
func (x *examination) badLock(check string, of inspect.Kind, err error) {
	flags := "--force"
	if of == inspect.CompactorLock {
		flags += " --compactor"
	}
	x.failed(check, err, "if its number is far above the one before: "+wrongLock+". Otherwise `fencepost step-down "+flags+
		" --validity D URL` replaces it. Its holder may still be at work, so D must be the holder's validity; the default is 15s")
}

const (
	startWriter = "start a writer, or find out why none of those that run takes over"
	// maxEpoch is the greatest epoch of an election: docs/format.md has it.
	maxEpoch = 1<<62 + 1<<40
	// fewEpochs are so few that something else than an election has used up the others.
	fewEpochs = 1_000_000
	// wrongLock is what to do about a lock with a wrong number.
	wrongLock = `delete nothing yet: "A lock with a wrong number" in docs/runbook.md has the steps. The first is to stop all candidates`
)

// leader says who leads.
func (x *examination) leader(ctx context.Context) {
	if x.state == nil { // but the lock may be sound
		if l, ok := x.lock(ctx); ok {
			x.leads(x.renewed(ctx, inspect.Lock, l), startWriter)
		}
		return
	}
	if err := x.badLocks[inspect.Lock]; err != nil {
		x.badLock("leader", inspect.Lock, err)
		return
	}
	x.leads(x.renewed(ctx, inspect.Lock, x.state.Leader), startWriter)
}

// renewed looks again at a lock that has lapsed. Where the age of a lock is the difference of two machines' clocks, as in a
// directory, a holder that renews its lock may seem to have crashed.
func (x *examination) renewed(ctx context.Context, of inspect.Kind, l survey.Term) survey.Term {
	if l.State != "lapsed" || clock.Sleep(ctx, clock.System(), min(l.Lasts(), time.Minute)) != nil {
		return l
	}
	now, err := survey.Leadership(ctx, x.st, of)
	if err != nil || now.Epoch == l.Epoch && now.Renewals == l.Renewals && now.State == l.State {
		return l
	}
	if now.State == "lapsed" {
		now.State, now.Leads = "held", true
		x.add("clock", Warning, "correct the clocks. Until then no age in this report can be relied on", "%s renews its lock, which is too old by this machine's clock: the clocks differ", now.Holder)
	}
	return now
}

func (x *examination) leads(l survey.Term, remedy string) {
	const check = "leader"
	switch {
	case l.Epoch == 0:
		x.add(check, OK, "", "nobody has led yet")
	case l.Leads:
		x.add(check, OK, "", "%s, epoch %d, since %s", l.Holder, l.Epoch, when(l.From))
	case l.State == "lapsed":
		x.add(check, Warning, remedy, "%s led in epoch %d and has crashed; nobody follows", l.Holder, l.Epoch)
	case l.EndedBy != "":
		x.add(check, Warning, "a successor may have to wait for the validity, "+l.Lasts().String()+". If nobody leads after that: "+remedy,
			"%s led in epoch %d and was deposed by %s (%s); nobody follows", l.Holder, l.Epoch, l.EndedBy, l.Reason)
	case steppedDown(l.Reason):
		x.add(check, Warning, remedy, "%s led in epoch %d and was deposed (%s); nobody follows", l.Holder, l.Epoch, l.Reason)
	default:
		x.add(check, OK, "", "nobody; %s led in epoch %d, %s", l.Holder, l.Epoch, l.Reason)
	}
	x.room("leader", l.Epoch)
}

// steppedDown tells by the reason in a lock whether somebody has deposed the leader. A leader that was alive has
// replaced the name of that one by its own, to say that it has stopped.
func steppedDown(reason string) bool { return strings.HasPrefix(reason, "stepped down") }

// room says whether there are epochs for the next leaders.
func (x *examination) room(check string, newest fence.Epoch) {
	if left := maxEpoch - uint64(newest); left < fewEpochs {
		x.add(check, Problem, wrongLock, "%d epochs are left after epoch %d: something else than an election has written a lock with that number, or with one before it", left, newest)
	}
}

const (
	// calm is how long a takeover that was not planned counts.
	calm = time.Hour
	// takeovers are so many of them that something is wrong.
	manyTakeovers = 5
)

// takeovers counts the leaderships that were not ended by their leaders, and looks at the number of the
// newest lock.
func (x *examination) takeovers(ctx context.Context) {
	const check = "takeovers"
	age, err := x.ages(ctx, inspect.Lock)
	var e *leader.Elector
	if err == nil {
		e, err = leader.New(x.st, inspect.Lock.Prefix(), nil)
	}
	if err != nil {
		x.failed(check, err, "")
		return
	}
	var newest leader.Record
	n, read, old := 0, 0, false
	for rec, err := range e.History(ctx) {
		if err != nil && !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
			x.failed(check, err, "")
			return
		}
		switch read++; {
		case read == 1:
			newest = rec
		case read == 2 && err == nil:
			x.gap(newest, rec)
		}
		// The age of an expired lock is the time since it was expired.
		old = old || read > 100 || err == nil && rec.Next == 0 && age(rec.Key, rec.Acquired) > calm
		if old && read > 1 {
			break
		}
		if !old && rec.Next == 0 && rec.State == leader.Expired && (rec.ExpiredBy != rec.Holder || steppedDown(rec.Reason)) {
			n++
		}
	}
	if n >= manyTakeovers {
		x.add(check, Warning, "make the validity longer than the pauses of the processes, or find out who steps them down: `fencepost history` has the reasons",
			"leaders deposed within the last hour: %d", n)
		return
	}
	x.add(check, OK, "", "leaders deposed within the last hour: %d", n)
}

// gap looks whether an election has written the newest lock: it counts on from the lock before.
func (x *examination) gap(newest, before leader.Record) {
	if newest.Epoch > max(before.Epoch, before.Next)+fewEpochs {
		x.add("leader", Problem, wrongLock, "the newest lock has epoch %d, and the one before it %d, which does not name the newest as the next: something else than an election has written the newest", newest.Epoch, before.Epoch)
	}
}

const (
	// manyObjects wait for a compactor: opening and catching up take seconds.
	manyObjects = 2048
	// someObjects wait where no compactor has ever run.
	someObjects = 100
	// longWait is how long an object waits if no compactor works. Those that run wait for a
	// minute by default.
	longWait = 30 * time.Minute
)

// compactGroup compacts the logs of all partitions.
const compactGroup = "`fencepost compact --watch --group` with the URL of the group"

// byToken tells whether the log has no election: a compactor or a writer had a token, as in a group, and there is
// no lock of theirs.
func (x *examination) byToken() bool {
	return x.state.State.Compactor > 0 || x.state.Leader.Epoch == 0 && x.badLocks[inspect.Lock] == nil && x.state.Tail.Epoch > 0
}

// compaction says whether a compactor keeps up.
func (x *examination) compaction(ctx context.Context) {
	l, c := x.state.Unfolded, x.state.Compactor
	wait := l.OldestAge
	if wait == 0 && !l.OldestAt.IsZero() {
		wait = max(x.Now().Sub(l.OldestAt), 0)
	}
	c = x.renewed(ctx, inspect.CompactorLock, c)
	who, crashed := "no compactor runs", false
	remedy := "run `fencepost compact --watch`, or compactor.Run in a process"
	if c.Epoch == 0 && x.byToken() { // then the compactor has no lock either, and nobody knows whether it runs
		who = "no compactor has worked here yet"
		if epoch := x.state.State.Compactor; epoch > 0 {
			who = fmt.Sprintf("the last compactor had a token, of epoch %d", epoch)
		}
		remedy = "if this is the log of a partition, run " + compactGroup + ". A `fencepost compact` of this log alone and that one would fence each other. " +
			"Otherwise look at the log of the program that gives the compactor its token"
	}
	switch err := x.badLocks[inspect.CompactorLock]; {
	case err != nil:
		x.badLock("compactor", inspect.CompactorLock, err)
		who, remedy = "no compactor can lead", "first see what is said of the lock of the compactors"
	case c.State == "lapsed":
		who, crashed = fmt.Sprintf("%s was the compactor and has crashed; nobody follows", c.Holder), true
	case c.Leads:
		who = c.Holder + " is the compactor"
		remedy = "read its log: it cannot work, or not as fast as the writer (compact --concurrency, --bytes-per-second)"
	}
	x.room("compactor", c.Epoch)
	never := c.Epoch == 0 && !x.byToken() && l.Objects > someObjects
	if crashed || never || l.Objects > manyObjects || wait > longWait {
		x.add("compaction", Warning, remedy, "%s; objects that wait: %d, the first for %v. Opening and catching up read all of them", who, l.Objects, wait.Round(time.Second))
		return
	}
	x.add("compaction", OK, "", "%s; objects that wait: %d", who, l.Objects)
}

// manySlots are so many after the last checkpoint that checkpoints must have failed.
const manySlots = 8192

// checkpoints says whether the leader writes them.
func (x *examination) checkpoints(context.Context) {
	// A leader that has never written a manifest leaves what a leader of an earlier epoch has noted.
	t, last := x.state.Tail, uint64(0)
	if noted := x.state.Noted; t.Epoch == noted.Epoch {
		last = noted.Seq
	}
	if t.Seq > last+manySlots {
		x.add("checkpoints", Warning, "read the leader's log: it cannot write manifests. A successor has to read all of these objects", "in epoch %d there are %d objects after the last one", t.Epoch, t.Seq-last)
		return
	}
	x.add("checkpoints", OK, "", "a new leader reads %d records", x.state.End-x.state.NotedOffset)
}

const (
	manyLocks = 3000
	manyFreed = 20_000
)

// growth looks for what should have been deleted.
func (x *examination) growth(context.Context) {
	const remedy = "run a compactor with the right to delete (`compactor` in docs/policies.md); `fencepost compact --dry-run` says what it would delete"
	fine := true
	warn := func(remedy, format string, args ...any) {
		fine = false
		x.add("growth", Warning, remedy, format, args...)
	}
	for _, kind := range []inspect.Kind{inspect.Lock, inspect.CompactorLock} {
		if n := x.state.Objects[kind].Objects; n > manyLocks {
			warn(remedy, "%d objects below %s/: old locks are not deleted", n, kind)
		}
	}
	if n := x.state.Overdue - x.state.Seals; n > manyFreed {
		warn(remedy, "%d objects below data/ are folded and not deleted", n)
	}
	if n := x.state.Strange; n > 0 {
		warn("find out whose they are: `fencepost verify` names them. Leave those of another log below this URL, of a backup (backup.json), and of any program that looks for them here. Move only the others",
			"objects that are not of this log: %d", n)
	}
	if fine {
		x.add("growth", OK, "", "nothing is left that should have been deleted")
	}
}

// oldUpload is the age of an upload that nobody goes on with.
const oldUpload = 7 * 24 * time.Hour

// uploads counts uploads that broke off.
func (x *examination) uploads(ctx context.Context) {
	st, ok := store.As[store.UploadAborter](x.st)
	if !ok {
		return
	}
	n := 0
	// An attempt is for all pages.
	err := store.Retry(ctx, &store.SettleOptions{Attempt: 5 * time.Minute, Reads: 3}, func(ctx context.Context) error {
		n = 0
		_, err := st.AbortUploads(ctx, "", func(info store.Info) bool {
			if age, known := info.Age(); known && age > oldUpload {
				n++
			}
			return false // none is touched
		})
		return err
	})
	switch {
	case errors.Is(err, store.ErrDenied):
		x.cannot("uploads", errors.New("these credentials may not list them"), "allow s3:ListBucketMultipartUploads (`doctor` in docs/policies.md), or have a rule of the bucket abort incomplete uploads below the prefix of the log")
	case err != nil:
		x.failed("uploads", err, "")
	case n > 0:
		x.add("uploads", Warning, "have a rule of the bucket abort incomplete uploads below the prefix of the log after some days; or run a compactor that may", "broken off more than a week ago, and paid for: %d", n)
	default:
		x.add("uploads", OK, "", "none is left that broke off")
	}
}
