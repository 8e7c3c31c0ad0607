package compactor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
)

// parts is a store in which uploads for keys are under way.
type parts struct {
	store.Store
	keys []string
	age  time.Duration // of all of them
	fail error
}

func (p *parts) AbortUploads(_ context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	before := len(p.keys)
	begun := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	p.keys = slices.DeleteFunc(p.keys, func(key string) bool {
		return strings.HasPrefix(key, prefix) && doomed(store.Info{Key: key, LastModified: begun, Date: begun.Add(p.age)})
	})
	return before - len(p.keys), p.fail
}

// Uploads are aborted by the rules of orphans: those of fenced compactors, and of leaders
// whose epoch is sealed and folded. Uploads that may still be completed are left alone,
// and so are those without a name of ours.
func TestAbortsUploads(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(2) // epoch 1
	w.Lead(2)
	w.Token = 3
	seg := func(epoch fence.Epoch) string {
		return layout.SegmentKey(layout.Compactor, epoch, uuid.NewString())
	}
	list := func(epoch fence.Epoch) string {
		return layout.ListKey(layout.Compactor, epoch, uuid.NewString())
	}
	file := func(epoch fence.Epoch) string { return layout.FileKey(epoch, uuid.NewString(), ".parquet") }
	stay := []string{seg(4), seg(5), list(4), file(2), file(3), "segment/x", "list/x", "file/x", "file/1/x", seg(1) + ".bak", "data/x", "tmp/x", "tmp/" + uuid.NewString()}
	st := &parts{Store: w.Mem, keys: slices.Concat(stay, []string{seg(1), seg(3), list(2), file(1), file(1)})}
	planned := func() int {
		plan, err := mustNew(t, st, &Options{Settle: logtest.Quick}).Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range plan.Deletes {
			if d.Kind == "upload" {
				return d.Count
			}
		}
		return 0
	}
	if n := planned(); n != 0 || len(st.keys) != len(stay)+5 {
		t.Errorf("planned are %d; nothing is folded yet, and no compactor was ever there; left are %q", n, st.keys)
	}
	r := w.compact(st, nil)
	if r.Pruned["upload"] != 5 || !slices.Equal(st.keys, stay) {
		t.Errorf("%v; left are %q, want %q", r.Pruned, st.keys, stay)
	}
	st.keys = append(st.keys, seg(3), file(1))
	if n := planned(); n != 4 || len(st.keys) != len(stay)+2 { // with those of this epoch, which is over for the next compactor
		t.Errorf("planned are %d, left are %q", n, st.keys)
	}
	// A store that does not let us ends nothing.
	st.keys = stay
	st.fail = &store.Error{Op: "abort", Kind: store.ErrDenied}
	if r, err := w.once(st, w.Token, nil); err != nil || r.Pruned["upload"] != 0 {
		t.Errorf("denied: %+v, %v", r, err)
	}
	if _, err := mustNew(t, st, &Options{Settle: logtest.Quick}).Plan(t.Context()); err != nil {
		t.Errorf("denied: %v", err)
	}
	// One that fails is asked again, and then it is told.
	st.fail = &store.Error{Op: "abort", Status: 503}
	var answer *store.Error
	if _, err := w.once(st, w.Token, &Options{Settle: logtest.Quick}); !errors.As(err, &answer) || answer.Status != 503 {
		t.Errorf("503: %v", err)
	}
}

// A probe uploads something in parts too. What it has left behind is aborted a day later.
func TestAbortsUploadsOfProbes(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(1)
	st := &parts{Store: w.Mem, keys: []string{"tmp/x", "tmp/" + uuid.NewString()}}
	for age, left := range map[time.Duration]int{tmpAge - time.Minute: 2, tmpAge + time.Minute: 1} {
		st := &parts{Store: st.Store, keys: slices.Clone(st.keys), age: age}
		if r := w.compact(st, nil); r.Pruned["upload"] != 2-left || len(st.keys) != left || st.keys[0] != "tmp/x" {
			t.Errorf("%v old: %v, left are %q", age, r.Pruned, st.keys)
		}
	}
}
