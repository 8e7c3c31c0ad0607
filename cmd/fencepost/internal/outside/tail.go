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

// slots is what listings have shown of the chain, without a gap from the floor to tail.
type slots struct {
	known   bool // a listing was made
	cut     bool // the last listing has ended at maxListed
	long    bool // a listing has: so the next ones begin at tail, until more than that is noted
	tail    fence.Position
	seals   map[fence.Epoch]uint64 // the slots of seals from the floor on
	beyond  int                    // how many a listing has shown after tail, in epochs before the one that is noted
	written time.Time
}

// findTail lists what was appended since the last look. A live leader notes how far it is, so
// the listing begins there: it is short, however busy the log is. If there are epochs before, it begins where
// the last look has ended, to find their seals. So a look that has much to catch up on leaves a part of it to the next.
// A leader that notes nothing may write more than a look lists. Then too a look begins where the last one has ended.
func (f *follower) findTail(ctx context.Context) error {
	s := &f.slots
	noted, floor := f.m.Tail().Position, f.m.Floor.Position
	from := s.tail
	if from.Before(floor) {
		from = floor
	}
	if from.Epoch >= noted.Epoch && (!s.long || from.Before(noted)) {
		from, s.long = noted, false
	}
	maps.DeleteFunc(s.seals, func(e fence.Epoch, _ uint64) bool { return e < floor.Epoch })
	filled, cut, err := f.list(ctx, from)
	if err != nil {
		return err
	}
	f.walk(from, filled)
	s.known, s.beyond, s.cut, s.long = true, 0, cut, s.long || cut
	for e, epoch := range filled { // not every store lists in order
		for seq := range epoch {
			if e < noted.Epoch && !(fence.Position{Epoch: e, Seq: seq}).Before(s.tail) {
				s.beyond++
			}
		}
	}
	switch {
	case f.behind():
		_, _, err = f.list(ctx, noted) // when the newest object came
	case s.tail.Before(noted):
		s.tail = noted
	}
	return err
}

// behind reports whether the walk has not reached the noted epoch yet. Until then the ends of the epochs before it are
// not all known.
func (f *follower) behind() bool { return f.slots.tail.Epoch < f.m.Tail().Position.Epoch }

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

// list lists the slots from a position on. Cut: there may be more than it lists.
func (f *follower) list(ctx context.Context, from fence.Position) (filled map[fence.Epoch]map[uint64]slot, cut bool, err error) {
	filled = map[fence.Epoch]map[uint64]slot{}
	before := from
	if before.Seq > 0 {
		before.Seq--
	}
	n := 0
	for info, err := range store.ListAll(ctx, f.st, layout.DataPrefix, &store.ListOptions{StartAfter: layout.DataKey(before)}, f.settle()) {
		if err != nil {
			return nil, false, err
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
			return filled, true, nil
		}
	}
	return filled, false, nil
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

// unfolded counts the objects from the floor to the tail. More: there are more.
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
	if at.Epoch < tail.Epoch {
		at = fence.Position{Epoch: tail.Epoch, Seq: 1}
	}
	if tail.Epoch >= at.Epoch {
		count(tail.Seq)
	}
	if f.behind() {
		at = fence.Position{Seq: 1}
		count(f.m.Tail().Position.Seq)
		n += f.slots.beyond
	}
	return n, f.behind() || f.slots.cut
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
	v.Read = Parts{Leader: j.leader.done, Manifest: f.m != nil, Tail: f.slots.known, Compactor: j.compactor.done, Pins: j.pins.done, PinVersions: f.pinsKnown}
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
		if f.behind() {
			v.Tail = m.Tail().Position
		}
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
	for _, s := range m.Seals {
		all = append(all, Seal{Position: s.Position, Next: uint64(s.Next), Offset: s.Offset, Folded: true})
	}
	for _, e := range slices.Sorted(maps.Keys(f.slots.seals)) {
		p := fence.Position{Epoch: e, Seq: f.slots.seals[e]}
		if !p.Before(m.Floor.Position) {
			all = append(all, Seal{Position: p})
		}
	}
	return all[max(0, len(all)-maxSeals):]
}

func paged(pages []state.Page[uint64]) (n int) {
	for _, p := range pages {
		n += p.Count
	}
	return n
}
