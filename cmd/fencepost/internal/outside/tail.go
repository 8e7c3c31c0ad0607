package outside

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
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
	counted fence.Position // the tail to which there are end records
	end     uint64
}

// findTail lists what was appended since the last look. A live leader notes how far it is, so
// the listing begins there: it is short, however busy the log is. If there are epochs before, it begins where
// the last look has ended, to find their seals. So a look that has much to catch up on leaves a part of it to the next.
// A leader that notes nothing may write more than a look lists. Then too a look begins where the last one has ended.
func (f *follower) findTail(ctx context.Context) error {
	s := &f.slots
	noted, floor := f.m.Noted, f.m.Floor
	from := s.tail
	if from.Before(floor) {
		from = floor
	}
	if from.Epoch >= noted.Epoch && (!s.long || from.Before(noted)) {
		from, s.long = noted, false
	}
	maps.DeleteFunc(s.seals, func(e fence.Epoch, _ uint64) bool { return e < floor.Epoch })
	filled, cut, err := f.listSlots(ctx, from)
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
		_, _, err = f.listSlots(ctx, noted) // when the newest object came
	case s.tail.Before(noted):
		s.tail = noted
	}
	if err == nil && !f.behind() {
		err = f.findEnd(ctx)
	}
	return err
}

// findEnd reads how many records there are up to the tail, if more was appended than is noted.
func (f *follower) findEnd(ctx context.Context) error {
	s := &f.slots
	last := s.tail
	if last.Seq--; !f.m.Noted.Before(s.tail) || last.Seq == 0 || s.counted == s.tail {
		return nil
	}
	for h, err := range f.log.Unfolded(ctx, &inspect.State{Floor: last}) {
		if err == nil && !h.Seal {
			s.end, s.counted = h.Offset+uint64(h.Records), s.tail
		}
		return err
	}
	return nil
}

// behind reports whether the walk has not reached the noted epoch yet. Until then the ends of the epochs before it are
// not all known.
func (f *follower) behind() bool { return f.slots.tail.Epoch < f.m.Noted.Epoch }

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

// listSlots lists the slots from a position on. Cut: there may be more than it lists.
func (f *follower) listSlots(ctx context.Context, from fence.Position) (filled map[fence.Epoch]map[uint64]slot, cut bool, err error) {
	filled = map[fence.Epoch]map[uint64]slot{}
	n := 0
	for info, err := range store.ListAll(ctx, f.st, inspect.Data.Prefix(), survey.After(from), f.settle()) {
		if err != nil {
			return nil, false, err
		}
		name := inspect.Parse(info.Key)
		p := name.Slot
		if name.Kind != inspect.Data || p.Before(from) {
			continue
		}
		if filled[p.Epoch] == nil {
			filled[p.Epoch] = map[uint64]slot{}
		}
		filled[p.Epoch][p.Seq] = data
		if info.Size == inspect.SealSize {
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
	if next := f.m.Noted.Epoch; next > e {
		return next
	}
	return 0
}

// unfolded counts the objects from the floor to the tail. More: there are more.
func (f *follower) unfolded() (n int, more bool) {
	at, tail := f.m.Floor, f.slots.tail
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
		count(f.m.Noted.Seq)
		n += f.slots.beyond
	}
	return n, f.behind() || f.slots.cut
}

// leaderships are those that a follower knows, the newest first.
func (f *follower) leaderships() []survey.Term {
	all := []survey.Term{} // not null in JSON
	for e, info := range f.locks {
		t, ok := f.terms[e]
		if !ok {
			t = survey.Term{Epoch: e, To: info.LastModified}
		}
		all = append(all, t)
	}
	if _, listed := f.locks[f.newest]; !listed && f.newest > 0 {
		all = append(all, f.terms[f.newest])
	}
	slices.SortFunc(all, func(a, b survey.Term) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return all[:min(len(all), maxTerms)]
}

// view is what a follower knows of a log, for others.
func (f *follower) view() *Log {
	v := &Log{Log: survey.Of(f.st, f.log.Format()), Manifests: append([]Manifest{}, f.manifests...), Rates: append([]Sample{}, f.samples...)}
	v.Leader, v.Compactor, v.Probe = f.lead(), f.compactor, nil
	v.Tail, v.LastAt = f.slots.tail, f.slots.written
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
		v.State, v.End = *m, max(m.NotedOffset, f.slots.end)
		if f.behind() {
			v.Tail = m.Noted
		}
		if f.slots.known {
			n, more := f.unfolded()
			v.Unfolded = &survey.Unfolded{Objects: n, More: more}
		}
		v.Seals = f.seals(m)
	}
	return v
}

// seals are the newest seals: those that are folded, and those after the floor.
func (f *follower) seals(m *inspect.State) []Seal {
	all := []Seal{}
	for _, s := range m.Ends {
		all = append(all, Seal{Position: s.Slot, Next: uint64(s.Next), Offset: s.Offset, Folded: true})
	}
	for _, e := range slices.Sorted(maps.Keys(f.slots.seals)) {
		p := fence.Position{Epoch: e, Seq: f.slots.seals[e]}
		if !p.Before(m.Floor) {
			all = append(all, Seal{Position: p})
		}
	}
	return all[max(0, len(all)-maxSeals):]
}
