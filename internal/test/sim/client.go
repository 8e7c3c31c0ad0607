package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// people starts the nodes of a plan.
func (p Plan) people(w *world) {
	some := func(role string, number int, work func(context.Context, *node)) {
		for i := range number {
			w.boot(fmt.Sprintf("%s%d", role, i+1), 1, p.Lives, work)
		}
	}
	some("w", p.Writers, writes)
	some("c", p.Compactors, compacts)
	some("r", p.Readers, reads)
	some("s", p.Snapshots, snapshots)
	some("b", p.Backups, backups)
}

// election returns leader options with a short validity, so that a history has several
// elections.
func (n *node) election(prefix string) *leader.Options {
	return &leader.Options{
		Hooks:    leader.Hooks{Elected: func(e leader.Election) { n.won(prefix, e.Epoch) }},
		Identity: fmt.Sprintf("%s/%x", n.name, n.rng.Uint64()), Validity: 2 * time.Second, Clock: n.clock, // the jitter follows from the identity
		NoPrune: n.rng.IntN(2) == 0, Prune: leader.PruneOptions{Keep: 1 + n.rng.IntN(2)},
	}
}

func (n *node) writerOptions() *writer.Options {
	inFlight := 1 + n.rng.IntN(4)
	return &writer.Options{
		Hedge: cmp.Or(n.world.plan.Hedge, -1), Linger: n.world.plan.Linger, Concurrency: inFlight, Window: inFlight + n.rng.IntN(3*inFlight), BatchBytes: 64, NoCompress: true,
		Checkpoint: time.Duration(1+n.rng.IntN(2000)) * time.Millisecond, Settle: n.settle(), Clock: n.clock,
	}
}

// simple returns the options of a writer that only appends.
func (n *node) simple() *writer.Options {
	return &writer.Options{Concurrency: 1, NoCompress: true, Checkpoint: -1, Settle: n.settle(), Clock: n.clock}
}

// writes is a client that leads several terms. Its tokens come from a counter or from the
// election.
func writes(ctx context.Context, n *node) {
	w := n.world
	for range w.plan.Terms {
		if !n.step(ctx) {
			return
		}
		if w.plan.Elected {
			n.elected(ctx)
			continue
		}
		if w.token == 0 || !w.plan.Twins || n.rng.IntN(3) > 0 {
			w.token++ // otherwise two nodes get the same token, which must do no harm
		}
		token := fence.NewToken(w.token)
		if !n.step(ctx) { // other nodes may get later tokens meanwhile
			return
		}
		call := w.steps
		octx, cancel := n.impatient(ctx, 10)
		octx, stop := clock.WithTimeout(octx, n.clock, 30*time.Second, errPatience)
		wr, err := writer.Open(octx, n.store(), token, n.writerOptions())
		stop()
		cancel(nil)
		if err != nil {
			n.expect(err, writer.ErrFenced, errPatience)
			continue
		}
		n.opened(call, wr)
		n.lead(ctx, wr)
	}
}

var errPatience = errors.New("sim: the client gave up waiting")

// elected leads terms of the election until the client's work is done.
func (n *node) elected(ctx context.Context) {
	call := n.world.steps
	o := &fencepost.Options{Leader: n.election(layout.LockPrefix), Writer: n.writerOptions()}
	err := fencepost.Run(ctx, n.store(), o, func(ctx context.Context, s *fencepost.Session) error {
		n.opened(call, s.Writer)
		n.lead(ctx, s.Writer)
		call = n.world.steps
		return nil
	})
	n.expect(err, writer.ErrFenced, writer.ErrUnknown, writer.ErrClosed, leader.ErrLost)
}

// lead appends records and commits edits. Then it closes the writer, sometimes with an
// impatient context.
func (n *node) lead(ctx context.Context, wr *writer.Writer) {
	w := n.world
	var waits sync.WaitGroup
	table := editor{node: n, wr: wr, waits: &waits}
	for i := range w.plan.LeastAppends + 1 + n.rng.IntN(w.plan.Appends) {
		if !n.step(ctx) {
			break
		}
		if w.plan.Edits && n.rng.IntN(5) < 2 {
			if !table.edit(ctx, fmt.Sprintf("%s/%d/%d", n.name, wr.Epoch(), i)) {
				break
			}
			continue
		}
		var values []string
		var records [][]byte
		for k := range 1 + n.rng.IntN(2) {
			v := fmt.Sprintf("%s/%d/%d.%d", n.name, wr.Epoch(), i, k)
			values, records = append(values, v), append(records, []byte(v))
		}
		id := n.history().begin(op{kind: opAppend, node: n.name, epoch: wr.Epoch(), values: values, call: w.steps})
		f, err := wr.AppendAsync(ctx, records, writer.Cursor([]byte(values[len(values)-1])))
		if err != nil {
			n.history().refused(id)
			n.appended(id, 0, err)
			break
		}
		waits.Go(func() {
			off, err := f.Wait(context.Background())
			n.appended(id, off, err)
		})
	}
	cctx, cancel := n.impatient(ctx, 3)
	defer cancel(nil)
	cctx, stop := clock.WithTimeout(cctx, n.clock, time.Minute, errPatience)
	defer stop()
	_ = wr.Close(cctx)
	waits.Wait()
}

// impatient returns a context that, once in oneIn calls on average, the scheduler can
// cancel at any time.
func (n *node) impatient(ctx context.Context, oneIn int) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if n.rng.IntN(oneIn) == 0 {
		go func() {
			if n.do(ctx, &request{op: opStep, key: "patience"}).err == nil {
				cancel(errPatience)
			}
		}()
	}
	return ctx, cancel
}

func compacts(ctx context.Context, n *node) {
	w := n.world
	o := &compactor.Options{
		FanIn: 2, SegmentBytes: 1 << n.rng.IntN(10), NoCompress: true, Settle: n.settle(), Clock: n.clock,
		Leader: n.election(layout.CompactorLockPrefix),
	}
	o.Leader.NoPrune = false
	n.retains = n.retention()
	o.Retain = n.retains.Retain
	var c *compactor.Compactor
	for n.step(ctx) {
		var err error
		if !w.plan.Elected {
			w.ctoken++
			o.Token = fence.NewToken(w.ctoken)
		}
		if c == nil || !w.plan.Elected {
			if c, err = compactor.New(n.store(), o); err != nil {
				n.history().broken("client", "%v", err)
				return
			}
		}
		if w.plan.Elected {
			_, err = c.Once(ctx)
			n.expect(err, compactor.ErrFenced, state.ErrVoid, leader.ErrLost)
		} else {
			for range 1 + n.rng.IntN(6) {
				if !n.step(ctx) {
					return
				}
				octx, cancel := n.impatient(ctx, 3)
				_, err = c.Once(octx)
				cancel(nil)
				n.expect(err, compactor.ErrFenced, state.ErrVoid, errPatience)
				if errors.Is(err, compactor.ErrFenced) {
					break
				}
				if n.retains.truncates && n.rng.IntN(2) == 0 {
					n.truncate(ctx, c)
				}
			}
		}
		if (w.plan.Grace > 0 || w.plan.Snapshots > 0) && clock.Sleep(ctx, n.clock, time.Duration(1+n.rng.IntN(3))*time.Second) != nil {
			return
		}
	}
}

func reads(ctx context.Context, n *node) {
	w := n.world
	r, err := reader.Open(ctx, n.store(), n.readerOptions())
	if err != nil {
		n.expect(err)
		return
	}
	end := uint64(0)
	for n.step(ctx) {
		tail := n.rng.IntN(2) == 0
		id := n.history().begin(op{kind: opRead, node: n.name, call: w.steps, tail: tail})
		var seen []string
		from, least := n.oldest(), w.begins()
		if w.plan.Retain && n.rng.IntN(4) == 0 {
			from = n.rng.Uint64N(end + 1)
		}
		base := from
		rctx, cancel := clock.WithTimeout(ctx, n.clock, time.Duration(1+n.rng.IntN(3000))*time.Millisecond, errPatience)
		records := r.Read
		if tail {
			records = r.Tail
		}
		var failed error
		stopped := false
		for rec, err := range records(rctx, from) {
			if failed = err; err != nil {
				break
			}
			if len(seen) == 0 {
				base = n.begun(from, rec.Offset, least)
			}
			if rec.Offset != base+uint64(len(seen)) {
				n.broken("offset", "%s got offset %d after %d records that began at offset %d", n.name, rec.Offset, len(seen), base)
				break
			}
			seen = append(seen, string(rec.Value))
			if stopped = n.rng.IntN(8) == 0 && !n.step(rctx); stopped {
				break
			}
		}
		// A client that stopped early, or was stopped, has read only a prefix.
		complete := !tail && !stopped && failed == nil && rctx.Err() == nil
		cancel()
		n.givenUp(failed, base, len(seen))
		if !n.crashed() {
			if base == reader.Oldest { // it read nothing
				base, complete = 0, complete && !w.plan.Retain
			}
			n.history().read(id, seen, base, complete, w.steps)
		}
		end = max(end, base+uint64(len(seen)))
	}
}

// The following functions ignore what a crashed node reports.

func (n *node) history() *history { return n.world.history }

func (n *node) opened(call int, wr *writer.Writer) {
	if n.crashed() {
		return
	}
	rec := wr.Recovered()
	h := n.history()
	h.end(h.begin(op{kind: opOpen, node: n.name, epoch: rec.Epoch, offset: rec.Offset, cursor: string(rec.Cursor), call: call}),
		yes, rec.Offset, n.world.steps)
	n.world.tellf(n.name, "opened epoch %d at offset %d", rec.Epoch, rec.Offset)
}

func (n *node) appended(id int, offset uint64, err error) {
	if n.crashed() {
		return
	}
	outcome := maybe
	switch {
	case err == nil:
		outcome = yes
	case errors.Is(err, writer.ErrNotCommitted):
		outcome = no
	}
	values := n.history().end(id, outcome, offset, n.world.steps)
	if outcome == yes {
		n.world.tellf(n.name, "append of %s: acknowledged at %d", values, offset)
		return
	}
	n.world.tellf(n.name, "append of %s: %v", values, err)
}

func (n *node) crashed() bool {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	return n.dead
}

func (n *node) broken(kind, format string, args ...any) {
	if !n.crashed() {
		n.history().broken(kind, format, args...)
	}
}

// expect reports an error that is neither allowed nor a consequence of a fault of the
// store.
func (n *node) expect(err error, allowed ...error) {
	if err == nil || n.crashed() {
		return
	}
	allowed = append(allowed, store.ErrUnknown, store.ErrDenied, context.Canceled, errPatience)
	if slices.ContainsFunc(allowed, func(a error) bool { return errors.Is(err, a) }) {
		return
	}
	var fault *store.Error
	if errors.As(err, &fault) && fault.Kind == nil {
		return // the request failed at every attempt
	}
	n.broken("error", "%s: unexpected error: %v", n.name, err)
}
