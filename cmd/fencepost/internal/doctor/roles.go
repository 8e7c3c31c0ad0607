package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// advice returns what to do about an error, or what is to be done otherwise.
func advice(err error, otherwise string) string {
	switch {
	case errors.Is(err, leader.ErrCorrupt):
		return "read that lock; if nobody needs it, `fencepost step-down --force` replaces it"
	case errors.Is(err, leader.ErrInconsistent):
		return "something else than an election has written a lock with the highest number: delete that object, unless somebody has led in that epoch"
	case errors.Is(err, fence.ErrFormat):
		return "upgrade this program"
	case errors.Is(err, store.ErrDenied):
		return "check the credentials: doctor needs the rights of a reader (`fencepost policy --role reader`)"
	}
	return otherwise
}

// leader says who leads.
func (x *examination) leader(context.Context) {
	x.leads(x.state.Leader, "start a writer, or find out why none of those that run takes over")
}

func (x *examination) leads(l survey.Leadership, remedy string) {
	switch {
	case l.Epoch == 0:
		x.add("leader", OK, "", "nobody has led yet")
	case l.Leads:
		x.add("leader", OK, "", "%s, epoch %d, since %s", l.Holder, l.Epoch, when(l.Since))
	case l.Lapsed:
		x.add("leader", Warning, remedy, "%s led in epoch %d and has crashed; nobody follows", l.Holder, l.Epoch)
	default:
		x.add("leader", OK, "", "nobody; %s led in epoch %d, %s", l.Holder, l.Epoch, l.Reason)
	}
}

const (
	// calm is how long a takeover that was not planned counts.
	calm = time.Hour
	// takeovers are so many of them that something is wrong.
	manyTakeovers = 5
)

// takeovers counts the leaderships that were not ended by their leaders.
func (x *examination) takeovers(ctx context.Context) {
	e, err := leader.New(x.st, layout.LockPrefix, nil)
	if err != nil {
		x.cannot("takeovers", err, "")
		return
	}
	n, read := 0, 0
	for rec, err := range e.History(ctx) {
		if err != nil && !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
			x.cannot("takeovers", err, "")
			return
		}
		if read++; read > 100 || err == nil && x.Now().Sub(rec.Acquired) > calm && rec.Next == 0 {
			break
		}
		if rec.Next == 0 && rec.State == leader.Expired && rec.ExpiredBy != rec.Holder {
			n++
		}
	}
	if n >= manyTakeovers {
		x.add("takeovers", Warning, "make the validity longer than the pauses of the processes, or find out who steps them down: `fencepost history` has the reasons",
			"leaders deposed within the last hour: %d", n)
		return
	}
	x.add("takeovers", OK, "", "leaders deposed within the last hour: %d", n)
}

const (
	// manyObjects wait for a compactor: opening and catching up take seconds.
	manyObjects = 2048
	// longWait is how long an object waits if no compactor works. Those that run wait for a
	// minute by default.
	longWait = 30 * time.Minute
)

// compaction says whether a compactor keeps up.
func (x *examination) compaction(context.Context) {
	l := x.lag
	wait := time.Duration(0)
	if !l.OldestAt.IsZero() {
		wait = max(x.Now().Sub(l.OldestAt), 0)
	}
	who := "no compactor runs"
	remedy := "run `fencepost compact --watch`, or compactor.Run in a process"
	if c := x.state.Compactor; c.Leads {
		who = c.Holder + " is the compactor"
		remedy = "read its log: it cannot work, or not as fast as the writer (compact --parallel, --bytes-per-second)"
	}
	if l.Objects > manyObjects || wait > longWait {
		x.add("compaction", Warning, remedy, "%s; objects that wait: %d, the first for %v. Opening and catching up read all of them", who, l.Objects, wait.Round(time.Second))
		return
	}
	x.add("compaction", OK, "", "%s; objects that wait: %d", who, l.Objects)
}

// manySlots are so many after the last checkpoint that checkpoints must have failed.
const manySlots = 8192

// checkpoints says whether the leader writes them.
func (x *examination) checkpoints(context.Context) {
	from := x.state.Manifest.Floor
	if h := x.state.Manifest.Hint; h != nil && from.Before(*h) {
		from = *h
	}
	if t := x.state.Tail; t.Epoch == from.Epoch && t.Seq > from.Seq+manySlots {
		x.add("checkpoints", Warning, "read the leader's log: it cannot write manifests. A successor has to read all of these objects", "the last one is %d objects before the tail", t.Seq-from.Seq)
		return
	}
	x.add("checkpoints", OK, "", "a new leader reads %d records", x.lag.End-x.lag.Checkpoint)
}

const (
	manyLocks = 3000
	manyFreed = 20_000
)

// growth looks for what should have been deleted.
func (x *examination) growth(context.Context) {
	const remedy = "run a compactor with the right to delete (`fencepost policy --role compactor`); `fencepost compact --dry-run` says what it would delete"
	fine := true
	warn := func(remedy, format string, args ...any) {
		fine = false
		x.add("growth", Warning, remedy, format, args...)
	}
	for _, kind := range []string{layout.KindLock, layout.KindCompactorLock} {
		if n := x.state.Objects[kind].Objects; n > manyLocks {
			warn(remedy, "%d objects below %s/: old locks are not deleted", n, kind)
		}
	}
	if n := x.state.BeforeFloor.Objects - x.state.Manifest.Seals; n > manyFreed {
		warn(remedy, "%d objects below data/ are folded and not deleted", n)
	}
	if n := x.state.Objects[layout.KindUnknown].Objects; n > 0 {
		warn("move them elsewhere; `fencepost verify` names them. Of a backup, backup.json belongs there", "objects that belong to no log: %d", n)
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
	_, err := st.AbortUploads(ctx, "", func(info store.Info) bool {
		if age, known := info.Age(); known && age > oldUpload {
			n++
		}
		return false // none is touched
	})
	switch {
	case errors.Is(err, store.ErrDenied):
		x.cannot("uploads", errors.New("these credentials may not list them"), "allow s3:ListBucketMultipartUploads, or have a rule of the bucket abort incomplete uploads")
	case err != nil:
		x.cannot("uploads", err, "")
	case n > 0:
		x.add("uploads", Warning, "have a rule of the bucket abort incomplete uploads after some days; or run a compactor that may", "broken off more than a week ago, and paid for: %d", n)
	default:
		x.add("uploads", OK, "", "none is left that broke off")
	}
}
