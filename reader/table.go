package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
)

// Place is a place between two objects of the chain. It tells whether a log that was restored
// from a backup, and went on, is still the same: see [Table.Contains].
type Place struct {
	// Slot of the object that comes next.
	Slot fence.Position
	// Opened is the nonce of the seal that opened the slot's epoch. Seals stay for ever.
	Opened fence.ID
}

// Edit is a change of the table, in its place in the log.
type Edit struct {
	// After is the place after it.
	After Place
	// Number counts the edits of the log, from 1.
	Number uint64
	// Offset is the number of records before it.
	Offset uint64
	// Time is the writer's time of day.
	Time time.Time
	// Change is what the edit does. It is shared: do not change it.
	Change *manifest.Edit

	slot fence.Position
}

// Table follows the log's table of files, edit by edit, for a program that applies them
// elsewhere. It pins nothing: see [Table.Version]. It is for one goroutine.
type Table struct {
	r      *Reader
	m      *state.Manifest // nil before the first Read
	came   clock.Instant   // when the last Read began
	end    frame.Point     // where the last Read has ended
	edits  uint64          // how many there are before end
	opened fence.ID        // nonce of the seal that opened the epoch of end
	seals  []state.Seal    // read on the chain by this Table, in order
	recent []Edit          // those after the floor of m
}

// Table returns a Table that has read nothing.
func (r *Reader) Table() *Table { return &Table{r: r} }

// Read reads on to the end of the log and returns the edits that are new since the last Read.
// Everything that was acknowledged before the call is among them, if it is not folded away:
// the first Read begins at the newest manifest, and so does one that was overtaken by a
// compactor. Compare [Edit.Number]. The edits that the caller misses show in [Table.Files].
//
// Errors: [ErrCorrupt], [ErrFormat], the store's or ctx's. After an error Read can be called
// again, and misses nothing. It costs one LIST, a GET for each object since the last Read, and a GET
// that finds no more; one more LIST if another leader has begun.
func (t *Table) Read(ctx context.Context) ([]Edit, error) {
	news, _, err := t.ReadAndPin(ctx, func([]Edit) string { return "" })
	return news, err
}

// ReadAndPin is [Table.Read], and may also pin [Table.Version] as it is before the call. It does so when it
// comes to the end of the log: if want, which gets the new edits, returns the name for a pin. A read of
// the manifest that Read needs anyway shows that the pin holds. So it costs only two PUTs more than
// Read. The pin is that of [Reader.Pin] without a ttl. want may be called more than once until it returns
// a name, also with a part of the new edits. At most one pin is tried.
//
// The Key of the pin is empty if there is none. A caller that needs one then uses [Reader.Pin]. There is
// none in these cases:
//
//   - want returned no name.
//   - This is the first Read, or the last one began a grace period ago or earlier.
//   - The log had no manifest then, or that version is pruned already.
//   - The store did not answer the second PUT at the first attempt, or a compactor has expired the pin.
//   - A compactor has overtaken the read, which began again.
//
// Errors are those of Read. After an error no pin is returned. A pin that was made and is not returned is
// deleted at once, which takes up to ten seconds more. If that fails too, the pin may stay in the store
// without end, for it has no ttl. [Reader.Pins] shows it with its name, and [Reader.Release] deletes it.
func (t *Table) ReadAndPin(ctx context.Context, want func(news []Edit) (name string)) ([]Edit, manifest.Pin, error) {
	for range searches {
		news, pin, err := t.read(ctx, want)
		if !errors.Is(err, errMoved) {
			return news, pin, err
		}
		t.m = nil // begin again at the floor
	}
	return nil, manifest.Pin{}, errFolded
}

func (t *Table) read(ctx context.Context, want func([]Edit) string) (news []Edit, pin manifest.Pin, err error) {
	known, begun := t.m, t.r.opts.Clock.Now()
	if begun.Sub(t.came) >= t.r.log.Format().Grace {
		known = nil // it may be pruned, and the pin would be for nothing
	}
	w := tableWalk{Table: *t, stream: t.r.stream(0)}
	// A caller that follows the log comes after each commit, or sooner.
	if w.stream.few = w.m != nil; !w.stream.few {
		if err := w.begin(ctx); err != nil {
			return nil, pin, err
		}
	}
	// Nobody else knows of a pin that was made before the walk failed.
	defer func() {
		if err != nil && pin.Key != "" {
			ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), t.r.opts.Clock, releaseTime, context.DeadlineExceeded)
			defer cancel()
			err = errors.Join(err, t.r.Release(ctx, pin))
			pin = manifest.Pin{}
		}
	}()
	w.stream.newest = func(ctx context.Context) (m *state.Manifest, err error) {
		name := ""
		if known != nil && known.Version > 0 {
			name = want(w.news)
		}
		if name != "" {
			version := known.Version
			// guard:read-one-pin. A walk of a Table tries to make one pin at most, and it looks at the
			// newest manifest at some seals and at its end.
			//
			//mutant:replace known = nil => _ = known
			known = nil
			pin, m, err = t.r.log.PinAndRead(ctx, &state.PinOptions{Version: version, Name: name})
			if !errors.Is(err, state.ErrPruned) && !errors.Is(err, manifest.ErrPinLost) {
				return m, err
			}
		}
		return t.r.log.Newest(ctx)
	}
	w.stream.m, w.stream.refreshed, w.stream.deliver = w.m, t.r.opts.Clock.Now(), w.add
	// A walk to the end reads the newest manifest there, and confirms what it has followed.
	if err := w.stream.walk(ctx, w.end); err != nil {
		return nil, pin, err
	}
	w.m, w.end, w.came = w.stream.m, w.stream.at, begun
	w.recent = slices.DeleteFunc(append(w.recent, w.news...), func(e Edit) bool { return e.Number <= w.m.Edits })
	*t = w.Table
	return w.news, pin, nil
}

// releaseTime bounds the release of a pin that nobody needs.
const releaseTime = 10 * time.Second

// tableWalk is one walk of a Table, which is replaced only if the walk ends well.
type tableWalk struct {
	Table
	stream *stream
	news   []Edit
}

// begin starts at the floor of the newest manifest.
func (w *tableWalk) begin(ctx context.Context) (err error) {
	if w.m, err = w.r.log.Newest(ctx); err != nil {
		return err
	}
	w.end, w.edits, w.seals, w.recent = w.m.Floor, w.m.Edits, nil, nil
	w.opened = fence.ID{}
	if n := len(w.m.Seals); n > 0 {
		w.opened = w.m.Seals[n-1].Nonce
		return nil
	}
	for s, err := range w.r.log.Seals(ctx, w.m) {
		if err != nil {
			return w.moved(err)
		}
		w.opened = s.Nonce
	}
	return nil
}

// moved turns the error of a page that is gone into errMoved.
func (t *Table) moved(err error) error {
	if errors.Is(err, state.ErrPruned) {
		return errMoved
	}
	return err
}

func (w *tableWalk) add(f *frame.Frame) error {
	if f.Kind == frame.Seal {
		w.opened = f.Nonce
		w.seals = append(slices.Clip(w.seals), state.Seal{Position: f.Position, Next: f.Next, Nonce: f.Nonce, Offset: f.Offset})
	}
	doc := f.Edit()
	if doc == nil {
		return nil
	}
	change, err := state.DecodeEdit(doc)
	if err != nil {
		return fmt.Errorf("reader: %s: %w", layout.DataKey(f.Position), err)
	}
	w.edits++
	next := fence.Position{Epoch: f.Position.Epoch, Seq: f.Position.Seq + 1}
	w.news = append(w.news, Edit{After: Place{next, w.opened}, Number: w.edits, Offset: f.Offset, Time: f.Time, Change: change, slot: f.Position})
	return nil
}

// Edits is how many edits the log has, as of the last Read.
func (t *Table) Edits() uint64 { return t.edits }

// Version is a version of the manifest that a pin can hold, as of the last Read. Its own edits
// are among [Table.Edits]. So while it is pinned, all files stay in the store that were live
// then or later. 0 stands for a log that has no manifest yet.
func (t *Table) Version() uint64 { return t.m.Version }

// End returns the place where the last Read has ended.
func (t *Table) End() Place { return Place{t.end.Position, t.opened} }

// Contains reports whether a place is on the chain, as of the last Read. It may be folded away.
// It is not if the log was restored from a backup that is older than the place. It costs a GET
// for each page of seals, if there are so many.
func (t *Table) Contains(ctx context.Context, p Place) (bool, error) {
	var opened bool
	var ended fence.Position
	look := func(s state.Seal) {
		opened = opened || s.Next == p.Slot.Epoch && s.Nonce == p.Opened
		if s.Position.Epoch == p.Slot.Epoch {
			ended = s.Position
		}
	}
	for s, err := range t.r.log.Seals(ctx, t.m) {
		if err != nil {
			return false, err
		}
		look(s)
	}
	for _, s := range t.seals {
		look(s)
	}
	if p.Slot.Epoch == t.end.Position.Epoch {
		ended = t.end.Position
	}
	if p.Slot.Epoch == 0 { // no epoch was open
		return p.Opened == fence.ID{}, nil
	}
	return opened && !ended.Before(p.Slot), nil
}

// Files yields the live files, as of the last Read, in order of their keys. The error is
// [ErrGone] if [Table.Version] is not pinned and its lists were deleted meanwhile.
func (t *Table) Files(ctx context.Context) iter.Seq2[manifest.File, error] {
	return func(yield func(manifest.File, error) bool) {
		edits := make([]state.AppliedEdit, len(t.recent))
		for i, e := range t.recent {
			edits[i] = state.AppliedEdit{Position: e.slot, Offset: e.Offset, Edit: e.Change}
		}
		m, err := t.m.Apply(edits)
		if err != nil {
			yield(manifest.File{}, damaged(err))
			return
		}
		for f, err := range t.r.log.Files(ctx, m) {
			if errors.Is(err, state.ErrPruned) {
				err = fmt.Errorf("%w: %w", ErrGone, err)
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}
