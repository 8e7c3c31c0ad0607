package sim

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
)

// memory is what retention is about: what the log held before it was given up.
type memory struct {
	values []string    // from offset 0 on, as far as anybody wanted to give up
	times  []time.Time // of the writers
	// decoded are manifests, by the first byte of each.
	decoded map[*byte]*state.Manifest
}

// retention is what a compactor gives up.
type retention struct {
	compactor.Retain
	// truncates: it is also told offsets, up to the highest.
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

// truncate gives up what lies before some offset.
func (n *node) truncate(ctx context.Context, c *compactor.Compactor) {
	log, err := state.Open(ctx, n.store(), &state.Options{Settle: n.settle(), Clock: n.clock})
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

// retaining looks at a request that may give up records, before it takes effect, and
// judges it after that.
func (w *world) retaining(r *request) (judge func()) {
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
			was = m.Start // it goes into a hole, perhaps beside other junk, and gives up nothing
		}
	}
	return func() {
		if r.rep.err == nil && m.Start > was {
			w.judgeRetention(r.node, m, was)
		}
	}
}

// judgeRetention: what was to be kept is kept.
func (w *world) judgeRetention(n *node, m *state.Manifest, was uint64) {
	w.counted.given += int(m.Start - was)
	w.tellf(n.name, "gives up what lies before %d", m.Start)
	o := n.retains
	switch {
	case m.Start > m.Floor.Offset || m.Start > uint64(len(w.given.values)):
		w.history.broken("given up", "%s gave up all before %d of a log with %d records, of which %d are folded", n.name, m.Start, len(w.given.values), m.Floor.Offset)
	case o.Records > 0 && m.Floor.Offset-m.Start < o.Records:
		w.history.broken("given up", "%s was to keep %d records, and kept those from %d to %d", n.name, o.Records, m.Start, m.Floor.Offset)
	case o.truncates && m.Start > o.highest:
		w.history.broken("given up", "%s was to give up what lies before %d at most, and gave up what lies before %d", n.name, o.highest, m.Start)
	case o.Age > 0:
		now := w.bucket.date(w.now)
		if now.IsZero() {
			now = n.clock.Wall()
		}
		for i := was; i < m.Start; i++ {
			if old := now.Sub(w.given.times[i]); old < o.Age {
				w.history.broken("given up", "%s was to keep what is younger than %v, and gave up %q, of %v ago", n.name, o.Age, w.given.values[i], old)
				break
			}
		}
	case o == (retention{}):
		w.history.broken("given up", "%s was to give up nothing, and gave up what lies from %d to %d", n.name, was, m.Start)
	}
}

// remember reads what is known of no more than that it is in the log.
func (w *world) remember() {
	n := w.direct("looks on")
	ctx := context.Background()
	r, err := reader.Open(ctx, n.store(), &reader.Options{Settle: n.settle(), Clock: n.clock})
	if err != nil {
		w.history.broken("read", "%v", err)
		return
	}
	for rec, err := range r.Read(ctx, uint64(len(w.given.values))) {
		if err != nil {
			w.history.broken("read", "%v", err)
			return
		}
		w.given.values, w.given.times = append(w.given.values, string(rec.Value)), append(w.given.times, rec.Time)
	}
}

// begins is where the log begins for who looks now.
func (w *world) begins() uint64 {
	if !w.plan.Retain {
		return 0
	}
	newest := ""
	for key := range w.bucket.objects {
		if strings.HasPrefix(key, layout.ManifestPrefix) {
			newest = max(newest, key)
		}
	}
	if newest == "" {
		return 0
	}
	return w.decoded(w.bucket.objects[newest].body).Start
}

// decoded is what a body says, which nobody changes any more.
func (w *world) decoded(body []byte) *state.Manifest {
	if len(body) == 0 {
		return &state.Manifest{}
	}
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

// oldest is where a client that wants all begins to read.
func (n *node) oldest() uint64 {
	if n.world.plan.Retain {
		return reader.Oldest
	}
	return 0
}

// givenUp judges why a client's reading has ended.
func (n *node) givenUp(err error, base uint64, seen int) {
	var gone *reader.GoneError
	if !errors.As(err, &gone) {
		n.expect(err, errPatience)
		return
	}
	next := base + uint64(seen)
	if known := uint64(len(n.world.given.values)); base == reader.Oldest || gone.Offset != next || gone.First <= next || gone.First > known {
		n.broken("given up", "%s is told, at offset %d: %v; never more than %d records were given up", n.name, next, err, known)
	}
}

// begun judges the first record that a client gets who asked for those from an offset
// on, and returns where it has begun.
func (n *node) begun(from, got, least uint64) uint64 {
	switch {
	case from != reader.Oldest && got != from:
		n.broken("offset", "%s asked for offset %d and got %d", n.name, from, got)
	case got < least:
		n.broken("given up", "%s got offset %d; the log began at %d when it asked", n.name, got, least)
	}
	return got
}
