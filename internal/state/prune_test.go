package state

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestPrune: the mark is published before the pins are listed, and both come before anything is
// deleted (guards mark-first and mark-before-pins). A pinned manifest stays (pinned-manifest).
//
// guard:pinned-manifest. Without this check: an operator pins version 5 with a name, to query it later;
// the prune mark rises above 5, and manifest 5 is deleted; the objects that it named are still in the
// store, but a reader of version 5 cannot learn their names.
//
// guard:mark-first. A reader that pins a version then reads the mark, and drops its pin if the mark has
// passed the version. Without this update: a compactor lists the pins, and finds none on version 5; a
// reader pins version 5, reads a mark below 5, and trusts its pin; the compactor deletes manifest 5 and
// what the pin holds.
//
// guard:mark-before-pins. A reader creates its pin and then reads the mark. Either the listing of the
// pins shows the pin, or the reader reads a mark that has passed its version, and drops the pin.
// Without this listing: a compactor lists the pins; a reader pins version 5, and reads the old mark;
// the compactor publishes a mark above 5, and deletes what the pin holds.
func TestPrune(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Compactor, 1, 4)
	l := testOpen(st)
	pin, err := l.Pin(t.Context(), &PinOptions{Name: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, st, layout.Compactor, 2, 5)
	m := newest(t, st)
	u := testUpdater(t, st, layout.Compactor, 2)
	mark := m.Version - 1
	var steps []string
	var deleted []uint64
	pruning := &Pruning{
		Mark: mark,
		Pins: func(ctx context.Context, got *Manifest) (Pinned, error) {
			steps = append(steps, "pins")
			if now := newest(t, st); now.PruneMark != mark || got.PruneMark != mark {
				t.Errorf("the pins are listed while the mark is %d, and that of the manifest %d; want %d", now.PruneMark, got.PruneMark, mark)
			}
			pins, err := l.Pins(ctx)
			return NewPinned(pins), err
		},
		Objects: func(context.Context) error { steps = append(steps, "objects"); return nil },
		Delete: func(ctx context.Context, keys []string) error {
			steps = append(steps, "manifests")
			for _, key := range keys {
				v, _ := layout.ParseManifestKey(key)
				deleted = append(deleted, v)
			}
			return store.DeleteAll(ctx, st, keys, quick)
		},
	}
	if err := u.Prune(t.Context(), m, pruning); err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for v := uint64(1); v < mark; v++ {
		if v != pin.Version() {
			want = append(want, v)
		}
	}
	if !slices.Equal(deleted, want) || !slices.Equal(steps, []string{"pins", "objects", "manifests"}) {
		t.Errorf("deleted %v in the steps %q, want %v: all before %d except the pinned %d", deleted, steps, want, mark, pin.Version())
	}

	// The mark is there already: an update of unknown outcome may have published it. The pins are listed
	// all the same.
	m, steps, deleted = newest(t, st), nil, nil
	if err := u.Prune(t.Context(), m, pruning); err != nil {
		t.Fatal(err)
	}
	if now := newest(t, st); now.Version != m.Version || !slices.Equal(steps, []string{"pins", "objects", "manifests"}) || len(deleted) > 0 {
		t.Errorf("the second time: version %d after %d, steps %q, deleted %v", now.Version, m.Version, steps, deleted)
	}

	// Somebody else prunes now.
	steps, pruning.Mark = nil, m.Version
	pruning.May = func(*Manifest) error { return ErrVoid }
	if err := u.Prune(t.Context(), m, pruning); !errors.Is(err, ErrVoid) || len(steps) > 0 || newest(t, st).PruneMark != mark {
		t.Errorf("%v, steps %q", err, steps)
	}
}

// TestPinned: an expired pin holds nothing. What a pinned version still names stays (pinned-objects).
//
// guard:pinned-objects. Without this bound: a snapshot pins version 5, whose table has file f; an edit
// removes file f, and version 6 drops it; the prune mark passes 6; a compactor deletes file f; the
// snapshot's holder opens file f, and does not find it.
func TestPinned(t *testing.T) {
	pinned := NewPinned([]PinInfo{
		{Pin: manifest.Pin{Version: 7, TTL: time.Minute}}, {Pin: manifest.Pin{Version: 5}}, {Pin: manifest.Pin{Version: 3, Expired: true}},
	})
	for mark, upTo := range map[uint64]uint64{4: 4, 5: 5, 9: 5} {
		if got := pinned.UpTo(mark); got != upTo {
			t.Errorf("with the mark %d dropped objects go up to version %d, want %d", mark, got, upTo)
		}
	}
	if got := NewPinned(nil).UpTo(9); got != 9 {
		t.Errorf("without a pin they go up to %d", got)
	}
	var free []uint64
	for v := range uint64(10) {
		if pinned.Frees(v, 8) {
			free = append(free, v)
		}
	}
	if want := []uint64{0, 1, 2, 3, 4, 6}; !slices.Equal(free, want) || len(pinned.All) != 2 {
		t.Errorf("versions %v may go, want %v; %d pins hold something", free, want, len(pinned.All))
	}
}
