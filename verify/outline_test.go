package verify_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
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

// slowest is a store to which a compactor writes what it has folded when it may. Its first manifest only says that it compacts.
type slowest struct {
	store.Store
	folded, may chan struct{}
	manifests   int
}

func (s *slowest) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if layout.KindOf(key) == layout.KindManifest {
		if s.manifests++; s.manifests == 2 {
			close(s.folded)
			<-s.may
		}
	}
	return s.Store.Put(ctx, key, body, o)
}

// TestOutlineSealed: a junk seal in a hole leads to an epoch that nobody has opened, and that is not folded. So what counts is
// whether the seal was folded meanwhile, and not the slot that is missing after it.
func TestOutlineSealed(t *testing.T) {
	l := newLog(t)
	l.Lead(3)
	l.Lead(3)
	l.Token++
	s := &slowest{Store: l.Mem, folded: make(chan struct{}), may: make(chan struct{})}
	c, err := compactor.New(s, &compactor.Options{Token: fence.NewToken(l.Token)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Once(context.Background())
		done <- err
	}()
	<-s.folded
	l.Epoch = 3 // nobody opens it
	l.Lead(3)
	l.Lead(3)
	hint, unused := l.Newest().Hint.Position, logtest.At(3, 1)
	r := outlined(t, &meanwhile{Store: l.Mem, key: layout.DataPrefix, do: func() {
		close(s.may)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if floor := l.Newest().Floor.Position; !floor.Before(unused) || !unused.Before(hint) {
			t.Errorf("the floor is %v, the hint was %v", floor, hint)
		}
		l.Put(slot(1, 1), l.Seal(logtest.At(1, 1), unused.Epoch))
	}})
	if !r.OK() || r.End != 12 {
		t.Errorf("it ends at %d: %v", r.End, r.Problems)
	}
}
