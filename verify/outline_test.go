package verify_test

import (
	"slices"
	"testing"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
)

func outlined(t *testing.T, st store.Store) *verify.Report {
	t.Helper()
	r, err := verify.Run(t.Context(), st, &verify.Options{Outline: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOutline: what is lost or cut is found by its name and size, as reading everything finds it.
func TestOutline(t *testing.T) {
	whole := sample(t)
	if r := outlined(t, whole.Mem); !r.OK() || r.End != 15 {
		t.Fatalf("%+v", r)
	}
	keys := func(r *verify.Report) (all []string) {
		for _, p := range r.Problems {
			all = append(all, p.Key)
		}
		return all
	}
	n := 0
	for _, key := range whole.Keys("") {
		kind, body := layout.KindOf(key), whole.Body(key)
		if kind == layout.KindLock {
			continue
		}
		for _, size := range []int{-1, 0, len(body) / 2} {
			if kind == layout.KindData && size > frame.HeaderSize {
				continue // it is not read
			}
			l := whole.Fork(t, nil)
			if size < 0 {
				del(l, key)
			} else {
				l.Put(key, body[:size])
			}
			want := keys(run(t, l.Mem))
			if got := keys(outlined(t, l.Mem)); !slices.Equal(got, want) {
				t.Errorf("%s with %d bytes: %q, not %q", key, size, got, want)
			}
			if len(want) > 0 {
				n++
			}
		}
	}
	if n < 30 {
		t.Errorf("%d damages", n)
	}
}

// TestOutlineReads: neither segments nor what a checkpoint has noted is read.
func TestOutlineReads(t *testing.T) {
	l := sample(t)
	hint := l.Newest().Hint.Position
	f := faultstore.New(l.Mem, nil)
	f.SetHook(func(op faultstore.Op) faultstore.Fault {
		p, slot := layout.ParseDataKey(op.Key)
		if op.Kind == faultstore.Get && (layout.KindOf(op.Key) == layout.KindSegment || slot && p.Before(hint) && len(l.Objects()[op.Key]) > frame.HeaderSize) {
			t.Errorf("%s is read", op.Key)
		}
		return faultstore.Fault{}
	})
	if r := outlined(t, f); !r.OK() || r.End != 15 {
		t.Errorf("%+v", r)
	}
}

// TestOutlineMoved: what is not listed any more may have been folded and deleted since the manifest was read.
func TestOutlineMoved(t *testing.T) {
	for name, do := range map[string]func(l *logtest.Log){
		"pruned":             compact,
		"junk in a hole":     func(l *logtest.Log) { compact(l); l.Put(slot(3, 4), []byte("a zombie's")) },
		"a junk seal in one": func(l *logtest.Log) { compact(l); l.Put(slot(3, 4), l.Seal(logtest.At(3, 4), 8)) },
	} {
		l := sample(t)
		r := outlined(t, &meanwhile{Store: l.Mem, key: layout.DataPrefix, do: func() { do(l) }})
		if !r.OK() || r.End != 15 || l.Newest().Floor.Position.Epoch < 4 {
			t.Errorf("%s: it ends at %d: %v", name, r.End, r.Problems)
		}
	}
}
