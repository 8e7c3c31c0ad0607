package outside

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// maxListed bounds how many objects a look lists: two pages.
const maxListed = 2 * page

// slots is what listings have shown of the chain.
type slots struct {
	known   bool // a listing was made
	tail    fence.Position
	seals   map[fence.Epoch]uint64 // the slots of seals from the floor on
	written time.Time
	// more: the epochs between the floor and the one that is noted have more slots than a look
	// lists. So it is not known how many, until the floor has passed asked.
	more  bool
	asked fence.Position
	least int // how many a look has listed there
}

// findTail lists what was appended since the last look. A live leader notes how far it is, so
// the listing begins there: it is short, however busy the log is.
func (f *follower) findTail(ctx context.Context) error {
	s := &f.slots
	noted, floor := f.m.Tail().Position, f.m.Floor.Position
	from := noted
	_, sealed := s.seals[floor.Epoch]
	asks := false
	switch {
	case s.known && s.tail.Epoch < noted.Epoch && !s.tail.Before(floor):
		from = s.tail // a new leader: find the seal of the last one
	case floor.Epoch < noted.Epoch && (s.more || !sealed) && s.asked != floor:
		from, asks = floor, true // nobody knows yet how many slots the epochs between have
	}
	maps.DeleteFunc(s.seals, func(e fence.Epoch, _ uint64) bool { return e < floor.Epoch })
	filled, err := f.list(ctx, from)
	if err != nil {
		return err
	}
	f.walk(from, filled)
	if asks {
		s.asked, s.least = floor, 0
		for e, epoch := range filled {
			if e < noted.Epoch {
				s.least += len(epoch)
			}
		}
	}
	switch {
	case s.tail.Epoch < noted.Epoch:
		s.more = true
	case asks, floor.Epoch == noted.Epoch:
		s.more = false
	}
	if s.tail.Before(noted) {
		s.tail = noted
	}
	s.known = true
	return nil
}

// walk follows the chain over the slots that were listed. Seals that earlier listings have shown count too: from may
// be after one.
func (f *follower) walk(from fence.Position, filled map[fence.Epoch]map[uint64]slot) {
	s := &f.slots
	s.tail = from
	for {
		epoch := filled[s.tail.Epoch]
		for epoch[s.tail.Seq] == data {
			s.tail.Seq++
		}
		if epoch[s.tail.Seq] == seal {
			s.seals[s.tail.Epoch] = s.tail.Seq
		}
		end, sealed := s.seals[s.tail.Epoch]
		if !sealed {
			return
		}
		next := f.after(s.tail.Epoch, filled)
		if next == 0 {
			s.tail.Seq = end + 1 // its successor has written nothing yet
			return
		}
		s.tail = fence.Position{Epoch: next, Seq: 1}
	}
}

type slot int

const (
	data slot = iota + 1
	seal
)

// list lists the slots from a position on.
func (f *follower) list(ctx context.Context, from fence.Position) (map[fence.Epoch]map[uint64]slot, error) {
	filled := map[fence.Epoch]map[uint64]slot{}
	before := from
	if before.Seq > 0 {
		before.Seq--
	}
	n := 0
	for info, err := range store.ListAll(ctx, f.st, layout.DataPrefix, &store.ListOptions{StartAfter: layout.DataKey(before)}, f.settle()) {
		if err != nil {
			return nil, err
		}
		p, ok := layout.ParseDataKey(info.Key)
		if !ok || p.Before(from) {
			continue
		}
		if filled[p.Epoch] == nil {
			filled[p.Epoch] = map[uint64]slot{}
		}
		filled[p.Epoch][p.Seq] = data
		if info.Size == sealSize {
			filled[p.Epoch][p.Seq] = seal
		}
		if info.LastModified.After(f.slots.written) {
			f.slots.written = info.LastModified
		}
		if n++; n == maxListed {
			break
		}
	}
	return filled, nil
}

// after returns the epoch that follows on the chain, or 0: the next one with an object, or the
// one that the manifest knows.
func (f *follower) after(e fence.Epoch, filled map[fence.Epoch]map[uint64]slot) fence.Epoch {
	for _, next := range slices.Sorted(maps.Keys(filled)) {
		if next > e {
			return next
		}
	}
	if next := f.m.Tail().Position.Epoch; next > e {
		return next
	}
	return 0
}

// unfolded counts the objects from the floor to the tail.
func (f *follower) unfolded() (n int, more bool) {
	at, tail := f.m.Floor.Position, f.slots.tail
	count := func(to uint64) {
		if to > at.Seq {
			n += int(to - at.Seq)
		}
	}
	for _, e := range slices.Sorted(maps.Keys(f.slots.seals)) {
		if e < at.Epoch || e >= tail.Epoch {
			continue
		}
		if e > at.Epoch {
			at = fence.Position{Epoch: e, Seq: 1}
		}
		count(f.slots.seals[e] + 1)
		at = fence.Position{Epoch: e + 1, Seq: 1}
	}
	if f.slots.more {
		n = max(n, f.slots.least)
	}
	if at.Epoch < tail.Epoch {
		at = fence.Position{Epoch: tail.Epoch, Seq: 1}
	}
	count(tail.Seq)
	return n, f.slots.more
}

// leaderships are those that a follower knows, the newest first.
func (f *follower) leaderships() []Term {
	all := []Term{} // not null in JSON
	for e, info := range f.locks {
		t, ok := f.terms[e]
		if !ok {
			t = Term{Epoch: e, To: info.LastModified}
		}
		all = append(all, t)
	}
	if _, listed := f.locks[f.newest]; !listed && f.newest > 0 {
		all = append(all, f.terms[f.newest])
	}
	slices.SortFunc(all, func(a, b Term) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return all[:min(len(all), maxTerms)]
}

// view is what a follower knows of a log, for others.
func (f *follower) view() *Log {
	format := f.log.Format()
	v := &Log{
		Store: f.st.Traits().Name, ID: format.Log.String(), Created: format.Created, Compactor: f.compactor,
		Tail: f.slots.tail, Written: f.slots.written, Manifests: append([]Manifest{}, f.manifests...), Rates: append([]Sample{}, f.samples...),
	}
	v.Terms, v.Pins, v.Seals = f.leaderships(), []Pin{}, []Seal{} // not null in JSON
	j := &f.jobs
	v.Read = Parts{Leader: j.leader.done, Manifest: f.m != nil, Tail: f.slots.known, Compactor: j.compactor.done, Pins: j.pins.done, PinVersions: f.pinsRead()}
	v.Complete = v.Read.Leader && v.Read.Manifest && v.Read.Tail && v.Read.Compactor && v.Read.Pins
	if j.published.failed < 2 {
		v.Published = f.published.state
	}
	if j.published.err != nil {
		v.PublishedErr = j.published.err.Error()
	}
	v.PinCount = f.pinCount
	for _, p := range f.pins {
		v.Pins = append(v.Pins, p.Pin)
	}
	slices.SortFunc(v.Pins, func(a, b Pin) int { return strings.Compare(a.ID, b.ID) })
	if m := f.m; m != nil {
		v.Floor, v.Records, v.First, v.Folded = m.Floor.Position, m.Tail().Offset, m.First(), m.Floor.Offset
		v.Unfolded, v.More = f.unfolded()
		v.Segments, v.SealCount = len(m.Segments)+paged(m.SegmentPages), len(m.Seals)+paged(m.SealPages)
		v.Files, v.PruneMark = m.Live(), int64(m.PruneMark)
		v.Edits = m.Edits
		v.Seals = f.seals(m)
	}
	return v
}

// seals are the newest seals: those that are folded, and those after the floor.
func (f *follower) seals(m *state.Manifest) []Seal {
	all := []Seal{}
	for _, s := range m.Seals[max(0, len(m.Seals)-maxSeals):] {
		all = append(all, Seal{Position: s.Position, Next: uint64(s.Next), Offset: s.Offset, Folded: true})
	}
	for _, e := range slices.Sorted(maps.Keys(f.slots.seals)) {
		p := fence.Position{Epoch: e, Seq: f.slots.seals[e]}
		if !p.Before(m.Floor.Position) {
			all = append(all, Seal{Position: p})
		}
	}
	return all
}

func paged(pages []state.Page[uint64]) (n int) {
	for _, p := range pages {
		n += p.Count
	}
	return n
}
