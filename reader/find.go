package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// finding is the search for the state of a log at one moment.
type finding struct {
	*Reader
	opts *SnapshotOptions

	pin   *keeper
	m     *state.Manifest // that is held
	state *state.Manifest // m with the edits up to at
	at    frame.Point     // the end of the snapshot
	// noCursor: the producer's cursor at that point is nowhere any more.
	noCursor bool
}

// find finds the moment that is asked for. It fails with errOvertaken if the floor
// has moved in a way that a new attempt can cope with.
func (f *finding) find(ctx context.Context) error {
	at := f.opts.At
	if at.by == "version" {
		if err := f.hold(ctx, at.number); err != nil {
			return err
		}
		f.state, f.at = f.m, f.m.Floor
		return nil
	}
	if err := f.hold(ctx, 0); err != nil {
		return err
	}
	end := at.number
	switch at.by {
	case "":
		_, err := f.walk(ctx, func(*frame.Frame) bool { return false })
		return err
	case "time":
		var later bool
		var err error
		if end, later, err = f.firstAfter(ctx, at); err != nil {
			return err
		}
		if !later {
			_, err := f.walk(ctx, func(o *frame.Frame) bool { return o.Kind != frame.Seal && o.Time.After(at.time) })
			return err
		}
	}
	if f.m.Floor.Offset > end {
		return f.folded(ctx, end)
	}
	return f.reach(ctx, end)
}

// hold pins a version, 0 is the newest, or only reads it.
func (f *finding) hold(ctx context.Context, version uint64) error {
	if err := f.letGo(ctx); err != nil {
		return err
	}
	if !f.opts.Unpinned {
		pin, err := f.log.Pin(ctx, &state.PinOptions{Version: version, Name: f.opts.Name, TTL: f.opts.TTL})
		if err != nil {
			return f.leanOn(ctx, version, err)
		}
		f.pin, f.m = f.keep(ctx, pin, f.opts.TTL), pin.Manifest()
		return nil
	}
	m, err := f.log.Newest(ctx)
	if err == nil && version != 0 && version != m.Version {
		mark := m.PruneMark
		if m, _, err = f.log.At(ctx, version); err == nil && version <= mark {
			err = fmt.Errorf("%w: version %d is at or below the prune mark %d", state.ErrGone, version, mark)
		}
	}
	if err != nil {
		return f.leanOn(ctx, version, err)
	}
	f.m = m
	return nil
}

// letGo releases the pin.
func (f *finding) letGo(ctx context.Context) error {
	pin := f.pin
	if pin == nil {
		return nil
	}
	f.pin = nil
	ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), f.Reader.opts.Clock, f.opts.TTL, context.DeadlineExceeded)
	defer cancel()
	return pin.release(ctx)
}

// leanOn uses somebody else's pin, such as a backup's: a version below the prune
// mark takes no new ones. It lasts as long as that pin does.
//
// Nobody can tell here whether that pin was made before the version was pruned. If it
// was not, there may be a zombie's manifest in the hole. But that too was made from
// the one chain that there is: what it says of the records and files before its floor
// is right, and what it names may be gone, which is told.
func (f *finding) leanOn(ctx context.Context, version uint64, gone error) error {
	if !errors.Is(gone, state.ErrGone) || version == 0 {
		return f.noVersion(ctx, version, gone)
	}
	m, _, err := f.log.At(ctx, version)
	if err != nil {
		// guard:lean-unread. That it could not be read says nothing of whether it is there.
		//
		//mutant:replace errors.Is(err, state.ErrGone) => true
		if errors.Is(err, state.ErrGone) {
			err = gone
		}
		return f.noVersion(ctx, version, err)
	}
	pins, err := f.log.Pins(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pins, func(p state.PinInfo) bool { return p.Version == version && !p.Expired }) {
		return f.noVersion(ctx, version, gone)
	}
	f.m = m
	return nil
}

// noVersion says what versions there are instead of one that is gone.
func (f *finding) noVersion(ctx context.Context, version uint64, err error) error {
	if !errors.Is(err, state.ErrGone) {
		return err
	}
	kept, kerr := f.kept(ctx)
	if kerr != nil || len(kept) == 0 {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return fmt.Errorf("%w: version %d; kept are %s", ErrGone, version, versions(kept))
}

// versions writes a few numbers.
func versions(v []uint64) string {
	switch n := len(v); {
	case n <= 6:
		return fmt.Sprint(v)
	default:
		return fmt.Sprintf("%d versions from %d to %d", n, v[0], v[n-1])
	}
}

// kept returns the versions that can be held, in order: those above the prune mark,
// and pinned ones.
func (f *finding) kept(ctx context.Context) ([]uint64, error) {
	m, err := f.log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	all, err := f.log.Versions(ctx)
	if err != nil {
		return nil, err
	}
	pins, err := f.log.Pins(ctx)
	if err != nil {
		return nil, err
	}
	pinned := map[uint64]bool{}
	for _, p := range pins {
		pinned[p.Version] = !p.Expired || pinned[p.Version]
	}
	var kept []uint64
	for v := range all {
		if v <= m.Version && (v > m.PruneMark || pinned[v]) {
			kept = append(kept, v)
		}
	}
	slices.Sort(kept)
	return kept, nil
}

// walk reads the chain from the floor up to the first object at which stop says
// so, or to its end. It tells whether it was stopped.
func (f *finding) walk(ctx context.Context, stop func(*frame.Frame) bool) (stopped bool, err error) {
	f.state = f.m
	c := f.cursor(f.m.Floor.Offset)
	c.m, c.refreshed = f.m, f.Reader.opts.Clock.Now()
	var e edits
	c.take = func(o *frame.Frame) error {
		if stop(o) {
			return errStopped
		}
		return e.add(&f.state, o)
	}
	err = c.walk(ctx, f.m.Floor)
	if stopped = errors.Is(err, errStopped); err != nil && !stopped {
		return false, err
	}
	f.at = c.at
	return stopped, e.apply(&f.state)
}

// reach is walk up to an offset.
func (f *finding) reach(ctx context.Context, end uint64) error {
	stopped, err := f.walk(ctx, beyond(end))
	if err != nil {
		return err
	}
	if !stopped && f.at.Offset < end {
		return fmt.Errorf("%w: offset %d; the log ends at %d", ErrAhead, end, f.at.Offset)
	}
	f.at.Offset = end // it may lie within the object at which the walk has stopped
	return nil
}

// beyond says whether an object has the record of an offset, or one behind it. An
// edit that lies before that record is not beyond.
func beyond(end uint64) func(*frame.Frame) bool {
	return func(o *frame.Frame) bool { return o.Offset+uint64(o.Records) > end }
}

// folded finds the state at an offset behind the floor of the manifest at hand.
// That manifest's own table is it, if no edit came since. Otherwise an older one
// has it, or the objects of the log between two of them, if they are still there.
func (f *finding) folded(ctx context.Context, end uint64) error {
	if first := f.m.First(); end < first {
		return &GoneError{Offset: end, First: first}
	}
	exact := func(m *state.Manifest) bool { return m.Floor.Offset > end && m.EditedAt <= end }
	if exact(f.m) {
		f.settle(end)
		return nil
	}
	kept, err := f.kept(ctx)
	if err != nil {
		return err
	}
	// Floors rise with versions: the first whose floor is beyond the offset has the
	// fewest edits that came later.
	var before, after *state.Manifest
	i := sort.Search(len(kept), func(i int) bool {
		if err != nil {
			return true
		}
		var m *state.Manifest
		m, _, err = f.log.At(ctx, kept[i])
		switch {
		case errors.Is(err, state.ErrGone):
			err = errOvertaken
			return true
		case err != nil:
			return true
		case m.Floor.Offset > end:
			after = m
			return true
		}
		before = m
		return false
	})
	if err != nil {
		return err
	}
	if i < len(kept) && after != nil && after.Version == kept[i] && exact(after) {
		if err := f.hold(ctx, after.Version); err != nil {
			return again(err)
		}
		f.settle(end)
		return nil
	}
	had := fmt.Sprintf("an offset of %d or more", f.m.EditedAt)
	gone := func(why string) error {
		if before != nil {
			had = fmt.Sprintf("version %d, at offset %d, or ", before.Version, before.Floor.Offset) + had
		}
		return fmt.Errorf("%w: the table at offset %d: %s; to be had are %s", ErrGone, end, why, had)
	}
	if before == nil || after == nil {
		return gone("no manifest of that time is kept")
	}
	if err := f.hold(ctx, before.Version); err != nil {
		return again(err)
	}
	return f.between(ctx, after.Floor, end, gone)
}

// settle makes the state at hand that of an offset.
func (f *finding) settle(end uint64) {
	f.state, f.noCursor = f.m, true
	f.at = frame.Point{Position: f.m.Floor.Position, Offset: end}
}

// again turns the loss of a version that was just listed into another attempt.
func again(err error) error {
	if errors.Is(err, ErrGone) {
		return errOvertaken
	}
	return err
}

// between walks from the floor of the version that is held to a later floor, and
// takes the edits up to an offset.
//
// That part of the chain is folded: its slots may be pruned, and hold what zombies
// have put there. What was walked is the history only if it is what was folded, from
// end to end.
func (f *finding) between(ctx context.Context, to frame.Point, end uint64, gone func(string) error) error {
	f.state, f.at = f.m, f.m.Floor
	var e edits
	past := false
	at := f.m.Floor
	newest, err := f.log.Newest(ctx)
	if err != nil {
		return err
	}
	for step, err := range f.chain.Walk(ctx, at) {
		switch {
		case errors.Is(err, ErrCorrupt), errors.Is(err, fence.ErrLimit):
			return gone("the log is pruned there")
		case err != nil:
			return err
		}
		// guard:read-seals. A seal does not say what comes before it, so nothing behind
		// one covers that. In the slot of data that was pruned, a zombie opener's seal leads
		// past all the rest of its epoch, and where the next epoch wrote nothing that is the very
		// same point.
		if step.Frame.Kind == frame.Seal {
			seal, ok, err := f.log.SealOf(ctx, newest, step.From.Position.Epoch)
			switch {
			case errors.Is(err, state.ErrGone):
				return errOvertaken
			case err != nil:
				return err
			case !ok || seal.Position != step.From.Position || seal.Nonce != step.Frame.Nonce:
				return gone("the log is pruned there")
			}
		}
		if past = past || beyond(end)(step.Frame); !past {
			f.at = step.To
			if err := e.add(&f.state, step.Frame); err != nil {
				return err
			}
		}
		if at = step.To; !at.Before(to) {
			break
		}
	}
	// guard:read-between. It has to arrive where the later version says, with the very
	// checksum that covers all before it, back to the last seal.
	if !at.Equal(to) {
		return gone("the log is pruned there")
	}
	f.at.Offset = end
	return e.apply(&f.state)
}

// After returns the offset of the first record whose Record.Time is after t, or
// the end of the log if there is none; see [AtTime] for how exact that is. Errors:
// [ErrGone] if the log begins later; [ErrCorrupt], [ErrFormat], the store's or ctx's.
func (r *Reader) After(ctx context.Context, t time.Time) (uint64, error) {
	for range snapshotTries {
		f := finding{Reader: r, opts: &SnapshotOptions{At: AtTime(t), Unpinned: true}}
		if err := f.hold(ctx, 0); err != nil {
			return 0, err
		}
		offset, found, err := f.firstAfter(ctx, f.opts.At)
		if err == nil && !found {
			_, err = f.walk(ctx, func(o *frame.Frame) bool { return o.Records > 0 && o.Time.After(t) })
			offset = f.at.Offset
		}
		if !errors.Is(err, errOvertaken) {
			return offset, err
		}
	}
	return 0, errFolded
}

// firstAfter returns the offset of the first folded record with a time after the
// wanted one; false if there is none.
func (f *finding) firstAfter(ctx context.Context, at Moment) (offset uint64, found bool, err error) {
	for seg, err := range f.log.Segments(ctx, f.m, f.m.First()) {
		switch {
		case errors.Is(err, state.ErrGone):
			return 0, false, errOvertaken
		case err != nil:
			return 0, false, err
		case !seg.To.After(at.time):
			continue
		}
		blocks, err := f.segs.Index(ctx, segment.Ref{Key: seg.Key, First: seg.First, End: seg.End, Size: seg.Size, Index: seg.Index})
		if errors.Is(err, store.ErrNotFound) {
			return 0, false, f.missing(ctx, seg, err)
		}
		if err != nil {
			return 0, false, fmt.Errorf("reader: %w; run `fencepost verify` to see the extent", err)
		}
		offset = seg.End
		for _, b := range blocks {
			if b.Latest.After(at.time) {
				offset = b.First
				break
			}
		}
		if first := f.m.First(); offset <= first && first > 0 {
			return 0, false, fmt.Errorf("%w: %v: the log begins at offset %d, which is later", ErrGone, at, first)
		}
		return offset, true, nil
	}
	return 0, false, nil
}

// missing decides what a segment means that is not there: it was merged and pruned, since
// it was not pinned, or it is lost.
func (f *finding) missing(ctx context.Context, seg state.Segment, err error) error {
	m, rerr := f.log.Newest(ctx)
	if rerr != nil {
		return rerr
	}
	now, rerr := f.log.SegmentOf(ctx, m, seg.First)
	// guard:find-lost. As in a cursor: the newest manifest still names it.
	//
	//mutant:replace now.Key == seg.Key => now.Key == ""
	switch {
	case rerr == nil && now.Key == seg.Key:
		return fmt.Errorf("reader: %w: manifest %d names segment %s, which is missing: %w; run `fencepost verify` to see the extent", ErrCorrupt, m.Version, seg.Key, err)
	case rerr == nil || errors.Is(rerr, state.ErrGone):
		return errOvertaken
	}
	return rerr
}

// edits gathers edits, and applies them some at a time.
type edits []state.AppliedEdit

func (e *edits) add(m **state.Manifest, o *frame.Frame) error {
	doc := o.Edit()
	if doc == nil {
		return nil
	}
	edit, err := state.DecodeEdit(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", layout.DataKey(o.Position), err)
	}
	*e = append(*e, state.AppliedEdit{Position: o.Position, Offset: o.Offset, Edit: edit})
	if len(*e) < 256 {
		return nil
	}
	return e.apply(m)
}

func (e *edits) apply(m **state.Manifest) error {
	if len(*e) == 0 {
		return nil
	}
	after, err := (*m).Apply(*e)
	if err != nil {
		return fmt.Errorf("reader: %w; run `fencepost verify` to see the extent", err)
	}
	*m, *e = after, nil
	return nil
}
