package survey_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// TestCheckpointMeanwhile: a checkpoint that comes after the walk may have more records than the walk has seen.
func TestCheckpointMeanwhile(t *testing.T) {
	st := newLog(t)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), [][]byte{[]byte("a")}); err != nil {
		t.Fatal(err)
	}
	f := faultstore.New(st, nil)
	lists := 0
	met := f.BeforeFirst(func(op faultstore.Op) bool {
		if op.Kind == faultstore.List && op.Key == layout.ManifestPrefix {
			lists++
		}
		return lists == 2
	}, func(ctx context.Context) {
		if _, err := w.Append(ctx, [][]byte{[]byte("b")}); err != nil {
			t.Error(err)
		}
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	l, err := survey.Behind(t.Context(), f)
	if err != nil || !met() || l.Checkpoint > l.End {
		t.Errorf("%t, %v: %+v", met(), err, l)
	}
}

// TestLostAtFloor: the object at the floor is missing, and a checkpoint says that there were more. That is no
// object that was pruned meanwhile.
func TestLostAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a")
	compact(t, st, 1)
	lead(t, st, 2, "", "b", "c", "d")
	s := take(t, st)
	if at := s.Manifest.Floor; s.Manifest.Hint == nil || !at.Before(*s.Manifest.Hint) {
		t.Fatalf("no checkpoint after the floor: %+v", s.Manifest)
	}
	for _, at := range []fence.Position{{Epoch: 2, Seq: 1}, s.Manifest.Floor} { // the second is the seal before the first
		if err := st.Delete(t.Context(), layout.DataKey(at)); err != nil {
			t.Fatal(err)
		}
		if _, err := survey.Behind(t.Context(), st); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), layout.DataKey(at)) {
			t.Errorf("%v is lost: %v", at, err)
		}
	}
}

// TestAppendedAtFloor: all is compacted, and the next leader's first object and checkpoint come after the look at the
// floor. Nothing is lost.
func TestAppendedAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a", "b")
	compact(t, st, 1)
	floor, looked := layout.DataKey(take(t, st).Manifest.Floor), false
	f := faultstore.New(st, nil)
	met := f.BeforeFirst(func(op faultstore.Op) bool {
		looked = looked || op.Key == floor
		return looked && op.Key == layout.ManifestPrefix
	}, func(context.Context) { lead(t, st, 2, "", "c", "d") })
	if _, err := survey.Behind(t.Context(), f); err != nil || !met() {
		t.Errorf("%t, %v", met(), err)
	}
}

// TestPrunedAtFloor: the object at the floor is folded and pruned after the walk.
func TestPrunedAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a", "b")
	floor := layout.DataKey(take(t, st).Manifest.Floor)
	f := faultstore.New(st, nil)
	met := f.BeforeFirst(func(op faultstore.Op) bool { return op.Key == floor }, func(ctx context.Context) {
		compact(t, st, 1)
		if err := st.Delete(ctx, floor); err != nil {
			t.Error(err)
		}
	})
	if l, err := survey.Behind(t.Context(), f); err != nil || !met() || !l.OldestAt.IsZero() {
		t.Errorf("%t, %v: %+v", met(), err, l)
	}
}

// TestDamagedAtFloor: the error names the object.
func TestDamagedAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a", "b")
	floor := layout.DataKey(take(t, st).Manifest.Floor)
	fixture.Put(t, st, floor, []byte("junk"))
	if _, err := survey.Behind(t.Context(), st); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), floor) {
		t.Error(err)
	}
}

// interrupted is a store whose listings fail once each in the middle.
type interrupted struct {
	store.Store
	failed map[string]bool
}

func (s *interrupted) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		n := 0
		for info, err := range s.Store.List(ctx, prefix, opts) {
			if n++; n == 3 && !s.failed[prefix] {
				s.failed[prefix] = true
				yield(store.Info{}, &store.Error{Op: "list", Key: prefix, Status: 503})
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// TestInterrupted: a listing that begins again counts nothing twice.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newLog(t)
		lead(t, st, 1, "", "a", "b", "c")
		compact(t, st, 1)
		lead(t, st, 2, "", "d", "e", "f")
		faulty := &interrupted{st, map[string]bool{}}
		if got, want := take(t, faulty), take(t, st); !faulty.failed[""] || !reflect.DeepEqual(got.Objects, want.Objects) || *got.BeforeFloor != *want.BeforeFloor {
			t.Errorf("%+v, %+v\nnot %+v, %+v", got.Objects, got.BeforeFloor, want.Objects, want.BeforeFloor)
		}
		want, err := survey.Behind(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		want.OldestAge = 0
		got, err := survey.Behind(t.Context(), faulty)
		if err != nil {
			t.Fatal(err)
		}
		if got.OldestAge = 0; !faulty.failed[layout.DataPrefix] || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nnot %+v", got, want)
		}
	})
}

// TestOverdue: objects that wait until they may be pruned are not overdue.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 10 * time.Minute
		st := logtest.New(t, logtest.WithGrace(grace), nil).Mem
		lead(t, st, 1, "", "a", "b", "c")
		compact(t, st, 1)
		time.Sleep(2*grace + time.Hour)
		if s := take(t, st); s.BeforeFloor.Objects < 3 || s.Overdue != 0 {
			t.Errorf("at once: %d overdue of %+v", s.Overdue, s.BeforeFloor)
		}
		time.Sleep(time.Second)
		if s := take(t, st); s.BeforeFloor.Objects < 3 || s.Overdue != s.BeforeFloor.Objects {
			t.Errorf("later: %d overdue of %+v", s.Overdue, s.BeforeFloor)
		}
	})
}
