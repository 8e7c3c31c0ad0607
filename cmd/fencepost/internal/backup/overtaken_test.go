package backup_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
)

// manifests counts the manifests in a store.
func manifests(t *testing.T, st store.Store) (n int) {
	t.Helper()
	for key := range objects(t, st) {
		if layout.KindOf(key) == layout.KindManifest {
			n++
		}
	}
	return n
}

// later lets the log live on, and completes a backup of it.
func (l *life) later(to store.Store) {
	l.t.Helper()
	l.lead()
	l.compact()
	if _, err := backup.Make(l.t.Context(), l.st, to, nil); err != nil {
		l.t.Error(err)
	}
}

// TestOvertakenBeforeItPins: a backup sleeps before it pins, and another one to the same place is complete. The first one wakes and pins;
// it ends, and leaves no pin.
func TestOvertakenBeforeItPins(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	slow := faultstore.New(src, nil)
	met := slow.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.PinPrefix)
	}, func(context.Context) { l.later(to) })
	if _, err := backup.Make(t.Context(), slow, to, nil); !met() || err == nil || !strings.Contains(err.Error(), "another backup to this place has begun meanwhile") {
		t.Errorf("%t, %v", met(), err)
	}
	if p := pins(t, src); len(p) > 0 {
		t.Errorf("left are the pins %q", p)
	}
	whole(t, to, &verify.Options{Copy: true})
}

// TestOvertakenWhileItIsRead: a backup sleeps while it reads its copy, and another one to the same place is complete. The first one says
// only that, and changes nothing.
func TestOvertakenWhileItIsRead(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	slow := faultstore.New(to, nil)
	met := slow.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.SegmentPrefix)
	}, func(context.Context) { l.later(to) })
	_, err := backup.Make(t.Context(), src, slow, nil)
	if !met() || err == nil || !strings.Contains(err.Error(), "another backup to this place has begun meanwhile") || strings.Contains(err.Error(), "empty place") {
		t.Errorf("%t, %v", met(), err)
	}
	if n := manifests(t, to); n != 1 {
		t.Errorf("%d manifests", n)
	}
	back := named("back")
	if _, err := backup.Restore(t.Context(), to, back, quick); err != nil || !slices.Equal(contents(t, back), contents(t, src)) {
		t.Error(err)
	}
}

// TestOvertakenAtFirst: another backup is complete between the first requests of a backup. Either that one ends, or it leaves nothing
// of the other.
func TestOvertakenAtFirst(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.Get, faultstore.List} {
		for _, empty := range []bool{false, true} {
			src, to := newLog(t), named("backup")
			l := begun(t, src)
			if !empty {
				l.later(to)
			}
			slow := faultstore.New(to, nil)
			met := slow.BeforeFirst(func(op faultstore.Op) bool { return op.Kind == kind }, func(context.Context) {
				l.later(to)
				l.lead()
				l.compact()
			})
			_, err := backup.Make(t.Context(), src, slow, nil)
			if err != nil && !strings.Contains(err.Error(), "another backup to this place has begun meanwhile") || !met() {
				t.Errorf("%v, empty %t: %t, %v", kind, empty, met(), err)
			}
			if n := manifests(t, to); n != 1 {
				t.Errorf("%v, empty %t: %d manifests", kind, empty, n)
			}
		}
	}
}

// TestMuchRot: many objects of the chain are damaged where only a walk finds that. They are found together: a restore, and a backup,
// do not walk the chain for each.
func TestMuchRot(t *testing.T) {
	const n = 30
	src, to, back := newLog(t), named("backup"), named("back")
	l := begun(t, src)
	for i := range n {
		l.long(byte(i))
	}
	rot := func(st store.Store) (damaged int) {
		for key, body := range objects(t, st) {
			if layout.KindOf(key) == layout.KindData && len(body) > 8<<10 {
				fixture.Put(t, st, key, damages["a bit at its end"](body))
				damaged++
			}
		}
		return damaged
	}
	count := func(st store.Store) (store.Store, func() int) {
		f, mu, reads := faultstore.New(st, nil), sync.Mutex{}, 0
		f.SetBefore(func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.DataPrefix) {
				mu.Lock()
				defer mu.Unlock()
				reads++
			}
		})
		return f, func() int { return reads }
	}
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), to, rotting{back, layout.DataPrefix}, quick); err == nil {
		t.Fatal("the restore is not interrupted")
	}
	for name, c := range map[string]struct {
		st  store.Store
		run func(st store.Store) (*backup.Report, error)
	}{
		"backup":  {to, func(st store.Store) (*backup.Report, error) { return backup.Make(t.Context(), src, st, nil) }},
		"restore": {back, func(st store.Store) (*backup.Report, error) { return backup.Restore(t.Context(), to, st, quick) }},
	} {
		if rot(c.st) != n {
			t.Fatal("the test has too few objects")
		}
		st, reads := count(c.st)
		r, err := c.run(st)
		if err != nil || r.Healed != n || reads() > 14*n {
			t.Errorf("%s: healed %d in %d reads, %v", name, r.Healed, reads(), err)
		}
	}
}

// TestOvertakenRestore: a restore sleeps while it reads its copy. Another one to the same place makes the log, which is used and
// compacted. The first one wakes, ends, and writes nothing, also if what it reads is damaged.
func TestOvertakenRestore(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src).long('a')
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	slow, before, segments := faultstore.New(back, nil), map[string][]byte{}, 0
	met := slow.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.SegmentPrefix)
	}, func(ctx context.Context) {
		r, err := backup.Restore(ctx, to, back, quick)
		if err != nil {
			t.Error(err)
			return
		}
		l := &life{t: t, st: back, epoch: r.Epoch}
		l.lead()
		l.compact()
		l.lead()
		l.compact()
		before, segments = objects(t, back), slow.Counts().Of(faultstore.Put, layout.SegmentPrefix)
	})
	_, err := backup.Restore(t.Context(), to, rotting{slow, layout.SegmentPrefix}, quick)
	if !met() || err == nil || !strings.Contains(err.Error(), "There is a log in mem://back now") {
		t.Errorf("%t, %v", met(), err)
	}
	if n := slow.Counts().Of(faultstore.Put, layout.SegmentPrefix); n > segments {
		t.Errorf("%d segments were written, want %d", n, segments)
	}
	after := objects(t, back)
	for key := range after {
		if !bytes.Equal(after[key], before[key]) {
			t.Errorf("%s was written", key)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d objects, want %d", len(after), len(before))
	}
}
