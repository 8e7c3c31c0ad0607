package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// maxFile is larger than any file that a client writes.
const maxFile = 1 << 10

// snapshots is a client that takes snapshots and reads each several times. Meanwhile
// their pins are renewed, sometimes too late.
func snapshots(ctx context.Context, n *node) {
	r, err := reader.Open(ctx, n.store(), n.readerOptions())
	if err != nil {
		n.expect(err)
		return
	}
	var version uint64 // of the last snapshot
	for n.step(ctx) {
		o := &reader.SnapshotOptions{TTL: manifest.MinPinTTL + time.Duration(n.rng.IntN(2000))*time.Millisecond, Unpinned: n.rng.IntN(6) == 0}
		at := momentEnd
		if version > 0 && n.rng.IntN(3) == 0 {
			o.Version, at = version, momentVersion
		}
		s := n.snapshot(ctx, r, o, at, nil)
		if s == nil {
			continue
		}
		version = s.Version()
		n.keep(ctx, s, o.TTL)
		n.expect(s.Close(ctx))
	}
}

func (n *node) readerOptions() *reader.Options {
	return &reader.Options{
		PollMax: time.Second, Concurrency: 1 + n.rng.IntN(4), Settle: n.settle(), Clock: n.clock,
	}
}

// taken is a snapshot, and what the history knows about it.
type taken struct {
	*reader.Snapshot
	hold  *hold // the pin that protects it, or nil
	read  int   // the op for its records
	table int   // the op for its table
	since int   // step at which it was taken
}

// snapshot takes a snapshot, or returns nil if it cannot. other is another pin that
// protects the snapshot.
func (n *node) snapshot(ctx context.Context, r *reader.Reader, o *reader.SnapshotOptions, at moment, other *hold) *taken {
	w := n.world
	call := w.steps
	octx, cancel := n.impatient(ctx, 10)
	octx, stop := clock.WithTimeout(octx, n.clock, time.Minute, errPatience)
	s, err := r.Snapshot(octx, o)
	stop()
	cancel(nil)
	if err != nil {
		if at == momentEnd {
			n.expect(err, reader.ErrPinLost)
			return nil
		}
		n.missing(err, other, "the snapshot")
		return nil
	}
	t := &taken{Snapshot: s, hold: other, since: w.steps}
	if s.Lost() != nil {
		t.hold = w.held(n, s.Version())
	}
	cursor := string(s.Cursor())
	seen := &table{end: s.End(), at: at, properties: s.Properties(), live: s.Live(), cursor: &cursor}
	w.tellf(n.name, "sees version %d up to offset %d, %d files", s.Version(), s.End(), s.Live())
	h := n.history()
	t.read = h.begin(op{kind: opRead, node: n.name, call: call, tail: at != momentEnd, table: seen})
	t.table = h.begin(op{kind: opTable, node: n.name, call: call, table: seen})
	return t
}

// keep reads a snapshot from time to time. It continues after the pin is lost.
func (n *node) keep(ctx context.Context, t *taken, ttl time.Duration) {
	for range 1 + n.rng.IntN(8) {
		if !n.step(ctx) {
			return
		}
		if n.rng.IntN(2) == 0 && clock.Sleep(ctx, n.clock, time.Duration(n.rng.Int64N(int64(3*ttl)))) != nil {
			return
		}
		n.look(ctx, t)
		if t.Lost() == nil || !n.world.holds.now(t.hold).lost {
			continue
		}
		// The holder may not know yet that its pin is lost. After the pin's time to live
		// it must know.
		if clock.Sleep(ctx, n.clock, ttl) != nil || !n.step(ctx) {
			return
		}
		if err := t.Err(); !errors.Is(err, reader.ErrPinLost) {
			n.broken("lapsed", "the pin of %s on version %d expired more than its time to live ago, but its Err returns %v", n.name, t.Version(), err)
		}
	}
}

// look reads a snapshot: its whole table, one of its files, and often its records.
func (n *node) look(ctx context.Context, t *taken) {
	var files []manifest.File
	for f, err := range t.Files(ctx) {
		if err != nil {
			n.missing(err, t.hold, "the table")
			return
		}
		files = append(files, f)
	}
	if !n.crashed() {
		n.history().looked(t.table, files, t.since)
	}
	if len(files) > 0 {
		f := files[n.rng.IntN(len(files))]
		body, _, err := store.Read(ctx, n.store(), f.Key, &store.ReadOptions{Limit: maxFile, Settle: n.settle()})
		if err != nil {
			n.missing(err, t.hold, f.Key)
		} else if want, known := n.history().content(f.Key); !known || string(body) != want {
			n.broken("content", "%s read %q in %s, but %q was written", n.name, body, short(mask(f.Key)), want)
		}
	}
	if n.rng.IntN(3) == 0 {
		return
	}
	var seen []string
	from := t.End()
	for rec, err := range t.Records(ctx, n.oldest()) {
		if err != nil {
			n.missing(err, t.hold, "a record")
			return
		}
		if len(seen) == 0 {
			from = n.begun(n.oldest(), rec.Offset, 0)
		}
		if rec.Offset != from+uint64(len(seen)) {
			n.broken("offset", "%s got offset %d after %d records of a snapshot that began at offset %d", n.name, rec.Offset, len(seen), from)
			return
		}
		seen = append(seen, string(rec.Value))
	}
	if n.crashed() {
		return
	}
	n.history().read(t.read, seen, from, true, t.since)
}

// missing checks an error from a read of a snapshot. All that a valid pin protects must
// exist. One exception: the holder may report its pin lost before any other node expires
// it, because its own clock says so.
func (n *node) missing(err error, h *hold, what string) {
	gone := []error{reader.ErrGone, state.ErrPruned, store.ErrNotFound}
	is := func(e error) bool { return errors.Is(err, e) }
	if slices.ContainsFunc(gone, is) && n.world.holds.now(h).valid() && !is(reader.ErrPinLost) {
		n.broken("gone", "%s holds version %d, but reading %s fails: %v", n.name, h.version, short(mask(what)), err)
	}
	n.expect(err, append(gone, reader.ErrPinLost)...)
}

// backups is a client that pins a version under a name. It comes back to the pin, also
// after a crash, until it unpins it.
func backups(ctx context.Context, n *node) {
	log, err := n.state(ctx)
	if err != nil {
		n.expect(err)
		return
	}
	r, err := reader.Open(ctx, n.store(), n.readerOptions())
	if err != nil {
		n.expect(err)
		return
	}
	name := "backup of " + n.role
	for n.step(ctx) {
		version, h, ok := n.backup(ctx, log, name)
		if !ok {
			continue
		}
		for range 1 + n.rng.IntN(4) {
			if !n.step(ctx) {
				return
			}
			if n.rng.IntN(2) == 0 && clock.Sleep(ctx, n.clock, time.Duration(n.rng.IntN(20))*time.Second) != nil {
				return
			}
			o := &reader.SnapshotOptions{Version: version, TTL: manifest.MinPinTTL, Unpinned: n.rng.IntN(2) == 0}
			if s := n.snapshot(ctx, r, o, momentVersion, h); s != nil {
				if s.hold != h && n.world.holds.now(h).valid() {
					s.hold = h // this pin lasts longer
				}
				n.look(ctx, s)
				n.expect(s.Close(ctx))
			}
		}
		if n.rng.IntN(3) > 0 {
			n.expect(log.Unpin(ctx, name), manifest.ErrNoPin)
		}
	}
}

// backup finds a pin by its name, or creates one.
func (n *node) backup(ctx context.Context, log *state.Log, name string) (version uint64, h *hold, ok bool) {
	pins, err := log.Pins(ctx)
	if err != nil {
		n.expect(err)
		return 0, nil, false
	}
	for _, p := range pins {
		if p.Name == name && !p.Expired && n.rng.IntN(3) > 0 {
			n.world.holds.mu.Lock()
			defer n.world.holds.mu.Unlock()
			return p.Version, n.world.holds.byKey[p.Object.Key], p.Version > 0
		}
	}
	p, err := log.Pin(ctx, &state.PinOptions{Name: name})
	if err != nil {
		n.expect(err)
		return 0, nil, false
	}
	return p.Version(), n.world.held(n, p.Version()), p.Version() > 0
}
