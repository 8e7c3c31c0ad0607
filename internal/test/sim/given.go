package sim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
)

// memory keeps the log's records, because the store loses those that are truncated.
type memory struct {
	values []string    // from offset 0 on, as far as any truncation has asked for
	times  []time.Time // by the writers' clocks
	// decoded caches manifests by the address of the body's first byte.
	decoded map[*byte]*state.Manifest
}

// retention says which records a compactor may truncate.
type retention struct {
	compactor.Retain
	// truncates: the client also calls Truncate, with offsets up to highest.
	truncates bool
	highest   uint64
}

// retention draws one for a node.
func (n *node) retention() retention {
	if !n.world.plan.Retain {
		return retention{}
	}
	switch n.rng.IntN(4) {
	case 0:
		return retention{Retain: compactor.Retain{Records: 1 + n.rng.Uint64N(6)}}
	case 1:
		return retention{Retain: compactor.Retain{Age: []time.Duration{time.Second, 20 * time.Minute, time.Hour}[n.rng.IntN(3)]}}
	case 2:
		return retention{Retain: compactor.Retain{Bytes: 1 + n.rng.Int64N(600)}}
	}
	return retention{truncates: true}
}

// truncate calls Truncate with a random offset.
func (n *node) truncate(ctx context.Context, c *compactor.Compactor) {
	log, err := n.state(ctx)
	if err != nil {
		n.expect(err)
		return
	}
	m, err := log.Newest(ctx)
	if err != nil {
		n.expect(err)
		return
	}
	before := n.rng.Uint64N(m.Floor.Offset + 1)
	n.retains.highest = max(n.retains.highest, before)
	n.expect(c.Truncate(ctx, before), compactor.ErrFenced, state.ErrVoid)
}

// retaining returns a check of a request that may truncate the log. Call retaining before
// the request takes effect, and the check after it.
func (w *world) retaining(r *request) (check func()) {
	version, ok := layout.ParseManifestKey(r.key)
	if !w.plan.Retain || !ok || r.op != "put" {
		return func() {}
	}
	m := w.decoded(r.body)
	if m.Start == 0 {
		return func() {}
	}
	if m.Start > uint64(len(w.given.values)) {
		w.remember()
	}
	was := uint64(0)
	if before := w.bucket.objects[layout.ManifestKey(version-1)]; before != nil {
		was = w.decoded(before.body).Start
	} else if version > 1 {
		was = m.Start
	}
	for key := range w.bucket.objects {
		if v, ok := layout.ParseManifestKey(key); ok && v > version {
			was = m.Start // the request fills a hole, so it truncates nothing
		}
	}
	return func() {
		if r.rep.err == nil && m.Start > was {
			w.checkRetention(r.node, m, was)
		}
	}
}

// checkRetention checks that a truncation kept all that the compactor had to keep.
func (w *world) checkRetention(n *node, m *state.Manifest, was uint64) {
	w.count.Given += int(m.Start - was)
	w.tellf(n.name, "truncates the log before offset %d", m.Start)
	o := n.retains
	switch {
	case m.Start > m.Floor.Offset || m.Start > uint64(len(w.given.values)):
		w.history.broken("truncated", "%s truncated the log before offset %d; it has %d records, of which %d are folded", n.name, m.Start, len(w.given.values), m.Floor.Offset)
	case o.Records > 0 && m.Floor.Offset-m.Start < o.Records:
		w.history.broken("truncated", "%s had to keep %d records, but kept only those from offset %d to %d", n.name, o.Records, m.Start, m.Floor.Offset)
	case o.truncates && m.Start > o.highest:
		w.history.broken("truncated", "%s was told to truncate before offset %d at most, but truncated before %d", n.name, o.highest, m.Start)
	case o.Age > 0:
		now := w.bucket.date(w.now)
		if now.IsZero() {
			now = n.clock.Wall()
		}
		for i := was; i < m.Start; i++ {
			if old := now.Sub(w.given.times[i]); old < o.Age {
				w.history.broken("truncated", "%s had to keep records younger than %v, but truncated %q, which is %v old", n.name, o.Age, w.given.values[i], old)
				break
			}
		}
	case o == (retention{}):
		w.history.broken("truncated", "%s had to keep all records, but truncated those from offset %d to %d", n.name, was, m.Start)
	}
}

// remember reads the log's records that memory does not have yet.
func (w *world) remember() {
	w.records(w.direct("observer"), uint64(len(w.given.values)), func(rec reader.Record) {
		w.given.values, w.given.times = append(w.given.values, string(rec.Value)), append(w.given.times, rec.Time)
	})
}

// begins returns the start of the log in the newest manifest.
func (w *world) begins() uint64 {
	if !w.plan.Retain {
		return 0
	}
	return w.manifest().Start
}

// manifest returns the newest manifest, an empty one if there is none.
func (w *world) manifest() *state.Manifest {
	if o := w.bucket.objects[layout.ManifestKey(w.newest())]; o != nil {
		return w.decoded(o.body)
	}
	return &state.Manifest{}
}

// newest returns the number of the newest manifest.
func (w *world) newest() uint64 {
	var top uint64
	for key := range w.bucket.objects {
		if v, ok := layout.ParseManifestKey(key); ok {
			top = max(top, v)
		}
	}
	return top
}

// decoded returns the manifest in a body. The body must not change.
func (w *world) decoded(body []byte) *state.Manifest {
	m := w.given.decoded[&body[0]]
	if m == nil {
		m = &state.Manifest{}
		if json.Unmarshal(body, m) != nil {
			m = &state.Manifest{}
		}
		w.given.decoded[&body[0]] = m
	}
	return m
}

// oldest returns the offset from which a client reads the whole log.
func (n *node) oldest() uint64 {
	if n.world.plan.Retain {
		return reader.Oldest
	}
	return 0
}

// givenUp checks the error that ended a client's read.
func (n *node) givenUp(err error, base uint64, seen int) {
	var gone *reader.GoneError
	if !errors.As(err, &gone) {
		n.expect(err, errPatience)
		return
	}
	next := base + uint64(seen)
	if known := uint64(len(n.world.given.values)); base == reader.Oldest || gone.Offset != next || gone.First <= next || gone.First > known {
		n.broken("truncated", "%s got at offset %d: %v; but at most %d records were truncated", n.name, next, err, known)
	}
}

// begun checks the first record that a client gets after it asked for offset from, and
// returns its offset.
func (n *node) begun(from, got, least uint64) uint64 {
	switch {
	case from != reader.Oldest && got != from:
		n.broken("offset", "%s asked for offset %d but got %d", n.name, from, got)
	case got < least:
		n.broken("truncated", "%s got offset %d, but the log already began at %d when it asked", n.name, got, least)
	}
	return got
}
