package chain

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestFollow tells junk from damage. The log begins with a seal and data/1/1; the cases
// say what comes then, and where the floor is.
//
// guard:open-damage. Without this check: a walk is paused before slot 1/4; slots up to 1/8 are pruned;
// opener Z puts its late seal for epoch 2 into the hole 1/4, finds that out, and opens epoch 2 after
// slot 1/9; the walk follows the junk seal into epoch 2; the first object there continues from slot
// 1/9, so its offset does not fit; the walk reports damage in a sound log.
func TestFollow(t *testing.T) {
	at := func(epoch fence.Epoch, seq uint64) fence.Position { return fence.Position{Epoch: epoch, Seq: seq} }
	seals := func(l *log) { l.seal(2).seal(3).data(1) }
	junk := func(l *log) {
		if _, err := l.st.Put(t.Context(), layout.DataKey(l.at.Position), []byte("junk"), nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		then      func(*log)
		floor     fence.Position
		confirmed bool
		objects   int   // that are yielded
		walk      error // of Walk
		confirm   error // of Confirm, if Walk had none
		tail      error // of Tail, likewise
		reads     int   // of the floor, by Walk
	}{
		"the tail":                            {floor: at(0, 1), objects: 2},
		"a hole":                              {floor: at(1, 3), objects: 2, confirm: ErrMoved, tail: ErrMoved},
		"genuine seals":                       {then: seals, floor: at(0, 1), objects: 5},
		"genuine seals, confirmed":            {then: seals, floor: at(0, 1), confirmed: true, objects: 5, reads: 2},
		"the floor is at the first seal":      {then: seals, floor: at(0, 2), objects: 5, confirm: ErrMoved, tail: ErrMoved},
		"confirmed: at the first seal":        {then: seals, floor: at(0, 2), confirmed: true, walk: ErrMoved, reads: 1},
		"damage":                              {then: junk, floor: at(0, 1), objects: 2, walk: ErrDamaged, reads: 1},
		"junk in a hole":                      {then: junk, floor: at(1, 3), objects: 2, walk: ErrMoved, reads: 1},
		"confirmed: the hole is after a seal": {then: junk, floor: at(1, 3), confirmed: true, walk: ErrMoved, reads: 1},
		"junk after a junk seal":              {then: func(l *log) { junk(l.seal(5)) }, floor: at(2, 1), objects: 3, walk: ErrMoved, reads: 1},
		"damage after a genuine seal":         {then: func(l *log) { junk(l.seal(5)) }, floor: at(0, 1), objects: 3, walk: ErrDamaged, reads: 1},
		"the floor cannot be read":            {then: junk, objects: 2, walk: store.ErrDenied, reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, memstore.New(nil)).seal(1).data(3)
			if tt.then != nil {
				tt.then(l)
			}
			reads := 0
			follow := func() (f *Follower, objects int, end frame.Point, err error) {
				f = &Follower{Source: source(l.st), Confirmed: tt.confirmed, Floor: func(context.Context) (fence.Position, error) {
					if reads++; tt.floor.Seq == 0 {
						return tt.floor, store.ErrDenied
					}
					return tt.floor, nil
				}}
				for step, failed := range f.Walk(t.Context(), frame.Start()) {
					if failed != nil {
						return f, objects, end, failed
					}
					objects, end = objects+1, step.To
				}
				return f, objects, end, nil
			}
			f, objects, end, err := follow()
			if objects != tt.objects || !errors.Is(err, tt.walk) || reads != tt.reads {
				t.Fatalf("%d objects, %v, %d reads; want %d, %v, %d", objects, err, reads, tt.objects, tt.walk, tt.reads)
			}
			if errors.Is(err, ErrDamaged) && !errors.Is(err, fence.ErrCorrupt) {
				t.Errorf("damage is not fence.ErrCorrupt: %v", err)
			}
			if err != nil {
				return
			}
			if err := f.Tail(t.Context(), end.Position); !errors.Is(err, tt.tail) {
				t.Errorf("Tail: %v, want %v", err, tt.tail)
			}
			f, _, _, _ = follow()
			if err := f.Confirm(t.Context()); !errors.Is(err, tt.confirm) {
				t.Errorf("Confirm: %v, want %v", err, tt.confirm)
			}
			// What is confirmed stays so, at no cost.
			if before := reads; tt.confirm == nil && (f.Confirm(t.Context()) != nil || reads != before) {
				t.Errorf("a second Confirm read the floor %d times", reads-before)
			}
		})
	}
}
