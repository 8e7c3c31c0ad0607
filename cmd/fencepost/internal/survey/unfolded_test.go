package survey_test

import (
	"context"
	"iter"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
)

func behind(t *testing.T, st store.Store) (*survey.Log, error) {
	t.Helper()
	return survey.Take(t.Context(), st, &survey.Options{Unfolded: true})
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
		want, err := behind(t, st)
		if err != nil {
			t.Fatal(err)
		}
		want.Unfolded.OldestAge = 0
		got, err := behind(t, faulty)
		if err != nil {
			t.Fatal(err)
		}
		if got.Unfolded.OldestAge = 0; !faulty.failed[layout.DataPrefix] || !reflect.DeepEqual(got.Unfolded, want.Unfolded) {
			t.Errorf("%+v\nnot %+v", got.Unfolded, want.Unfolded)
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
