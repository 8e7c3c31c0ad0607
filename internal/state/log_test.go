package state

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestNewestOfNothing(t *testing.T) {
	m := newest(t, memstore.New(nil))
	if m.Version != 0 || !m.Floor.Equal(frame.Start()) || m.Log != testLog || len(m.Roles) != 0 || m.First() != 0 {
		t.Errorf("%+v", m)
	}
}

// TestNewestCosts one LIST, and a GET only if something has changed.
func TestNewestCosts(t *testing.T) {
	st, _ := fixture.Faults(nil)
	apply(t, st, layout.Writer, 1, 3)
	l := testOpen(st)
	cost := func(lists, gets int) {
		t.Helper()
		st.ResetCounts()
		if _, err := l.Newest(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := st.Counts(); c.Of(faultstore.List, "") != lists || c.Of(faultstore.Get, "") != gets || c.Of("", "") != lists+gets {
			t.Errorf("%v", c)
		}
	}
	cost(1, 1)
	cost(1, 0)
	apply(t, st, layout.Writer, 2, 1)
	cost(1, 1)
	cost(1, 0)
}

// TestUpdateCosts two LISTs and one PUT: what it has written itself it need not
// read.
func TestUpdateCosts(t *testing.T) {
	st, _ := fixture.Faults(nil)
	u := testUpdater(t, st, layout.Writer, 1)
	for range 3 {
		st.ResetCounts()
		if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
			t.Fatal(err)
		}
		if c := st.Counts(); c.Of(faultstore.List, "") != 2 || c.Of(faultstore.Put, "") != 1 || c.Of("", "") != 3 {
			t.Errorf("%v", c)
		}
	}
}

func TestNewestPassesOverForeignNames(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Writer, 1, 2)
	for _, key := range []string{
		"manifest/99999999999999999999.json", "manifest/7.json", "manifest/00000000000000000009.json.bak", "manifest/x/00000000000000000009.json",
		"manifest/00000000000000000000.json", "manifest/README",
	} {
		fixture.Put(t, st, key, []byte("mine"))
	}
	if m := newest(t, st); m.Version != 2 {
		t.Errorf("the newest is %d", m.Version)
	}
	kept, err := testOpen(st).Versions(t.Context())
	if err != nil || len(kept) != 2 || kept[1].Key != layout.ManifestKey(1) || kept[2].Version != 2 {
		t.Errorf("%v, %v", kept, err)
	}
}

// TestT37_CountingUpwards: 50 is remembered, 51 to 90 have come and 50 to 89 are
// pruned. GET of 51 finds nothing, as if nothing had changed; or a zombie's junk.
func TestT37_CountingUpwards(t *testing.T) {
	st, _ := fixture.Faults(nil)
	apply(t, st, layout.Writer, 1, 50)
	reader, zombie := testOpen(st), testUpdater(t, st, layout.Compactor, 1)
	if m, err := reader.Newest(t.Context()); err != nil || m.Version != 50 {
		t.Fatalf("%+v, %v", m, err)
	}
	// The zombie has read 50 and is about to create 51, and sleeps there.
	zombies := 0
	_, err := zombie.Update(t.Context(), func(m *Change) error {
		if zombies++; zombies == 1 {
			apply(t, st, layout.Writer, 2, 40)
			mustPrune(t, st)
			if got, err := reader.Newest(t.Context()); err != nil || got.Version != 90 {
				t.Errorf("the reader sees %+v, %v", got, err)
			}
		}
		return effect("00000000-0000-4000-8000-00000000beef")(m)
	})
	if err != nil {
		t.Fatal(err)
	}
	// Its create of 51 succeeded, in a hole. It is there, and nobody believes it.
	if _, _, err := testOpen(st).At(t.Context(), 51); err != nil {
		t.Error("there should be junk at 51:", err)
	}
	m, err := reader.Newest(t.Context())
	if err != nil || m.Version != 91 || len(m.Segments) != 91 || count(effects(m), "00000000-0000-4000-8000-00000000beef") != 1 || zombies != 2 {
		t.Errorf("the reader sees %d with %d effects, %v; the zombie tried %d times", m.Version, len(m.Segments), err, zombies)
	}
}

// TestNewestRefilled: between LIST and GET the highest is replaced by a newer one,
// pruned, and its number filled with a zombie's junk.
//
// guard:manifest-match. Without this check: a reader lists manifest 90 as the highest; manifest 91
// replaces it, and manifest 90 is pruned; a zombie creates another manifest 90 in the hole; the reader
// takes the zombie's manifest for the newest.
func TestNewestRefilled(t *testing.T) {
	for _, name := range []string{"junk", "hole", "short junk", "foreign junk"} {
		t.Run(name, func(t *testing.T) {
			st, inner := fixture.Faults(nil)
			apply(t, st, layout.Writer, 1, 5)
			other := st.Client("other")
			done := 0
			st.SetBefore(func(_ context.Context, op faultstore.Op) {
				if op.Kind != faultstore.Get || op.Client != "" || done == 3 {
					return
				}
				done++
				top := newest(t, inner).Version
				apply(t, other, layout.Compactor, fence.Epoch(done), 1)
				mustPrune(t, other)
				switch name {
				case "junk":
					fixture.Put(t, inner, layout.ManifestKey(top), junk(t, top))
				case "short junk":
					fixture.Put(t, inner, layout.ManifestKey(top), []byte("{"))
				case "foreign junk":
					fixture.Put(t, inner, layout.ManifestKey(top), document.Sum(layout.ManifestKey(top), bytes.Replace(junk(t, top), []byte("10111213"), []byte("20212223"), 1)))
				}
			})
			m := newest(t, st)
			if done != 3 || m.Version != 8 || len(m.Segments) != 8 {
				t.Errorf("read %d with %d effects after %d times", m.Version, len(m.Segments), done)
			}
		})
	}
}

// TestNewestGivesUp when a number never stands still, rather than go on for ever.
func TestNewestGivesUp(t *testing.T) {
	st, inner := fixture.Faults(nil)
	apply(t, st, layout.Writer, 1, 1)
	st.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Get {
			fixture.Put(t, inner, layout.ManifestKey(1), junk(t, 1))
		}
	})
	_, err := testOpen(st).Newest(t.Context())
	if err == nil || errors.Is(err, fence.ErrCorrupt) {
		t.Error(err)
	}
	if n := st.Counts().Of(faultstore.Get, ""); n != newestTries {
		t.Errorf("%d GETs", n)
	}
}

// TestT36_ManifestsDeleted by a rule of the bucket: whoever has seen them does not
// begin again from an older state, nor from none.
//
// guard:newest-lost. A manifest is pruned only after a newer one has replaced it. A listing that is not
// atomic can miss manifest 9, just pruned, and also manifest 10. Without this check: an updater has
// read manifest 9; a lifecycle rule deletes manifests 8 and 9; the updater builds on manifest 7, and
// creates another manifest 8; the history forks.
func TestT36_ManifestsDeleted(t *testing.T) {
	for _, left := range []uint64{0, 2} {
		st := memstore.New(nil)
		l := testOpen(st)
		u, err := l.Updater(layout.Writer, fence.NewToken(1))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
				t.Fatal(err)
			}
		}
		for v := range uint64(3) {
			if v+1 > left {
				if err := st.Delete(t.Context(), layout.ManifestKey(v+1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, err = l.Newest(t.Context())
		fixture.WantErr(t, err, fence.ErrCorrupt, "manifest 3 was there")
		_, err = u.Update(t.Context(), effect(uuid.NewString()))
		fixture.WantErr(t, err, fence.ErrCorrupt, "manifest 3 was there")
	}
}

// staleList lists what was there at first.
type staleList struct {
	store.Store
	old store.Store
}

func (s staleList) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return s.old.List(ctx, prefix, opts)
}

// torn leaves manifests out of its next few listings.
type torn struct {
	store.Store
	left *int
	out  map[string]bool
}

func (s torn) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if *s.left == 0 {
		return s.Store.List(ctx, prefix, opts)
	}
	*s.left--
	return func(yield func(store.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, opts) {
			if !s.out[info.Key] && !yield(info, err) {
				return
			}
		}
	}
}

// TestListingThatIsNotAtomic may miss both the newest manifest and the one that
// takes its place. Who knows better looks again.
func TestListingThatIsNotAtomic(t *testing.T) {
	inner := memstore.New(nil)
	apply(t, inner, layout.Writer, 1, 3)
	st := torn{inner, new(int), map[string]bool{layout.ManifestKey(3): true, layout.ManifestKey(4): true}}
	l := testOpen(st)
	if m, err := l.Newest(t.Context()); err != nil || m.Version != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	apply(t, inner, layout.Writer, 1, 1)
	*st.left = lostTries
	if m, err := l.Newest(t.Context()); err != nil || m.Version != 4 || *st.left != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestUpdateOnStaleListing: a store that refuses number 1 and goes on listing
// nothing would keep an update busy for ever.
func TestUpdateOnStaleListing(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Writer, 1, 1)
	u := testUpdater(t, staleList{st, memstore.New(nil)}, layout.Compactor, 1)
	_, err := u.Update(t.Context(), effect(uuid.NewString()))
	fixture.WantErr(t, err, fence.ErrCorrupt, "manifest 1 was there")
	fixture.WantErr(t, err, store.ErrUnknown, "manifest 1 was sent")
}

func TestAt(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Writer, 1, 3)
	l := testOpen(st)
	for v := range uint64(3) {
		m, info, err := l.At(t.Context(), v+1)
		if err != nil || m.Version != v+1 || info.Key != layout.ManifestKey(v+1) || len(m.Segments) != int(v+1) {
			t.Errorf("%+v, %+v, %v", m, info, err)
		}
	}
	for _, v := range []uint64{0, 4} {
		_, _, err := l.At(t.Context(), v)
		fixture.WantErr(t, err, ErrPruned, layout.ManifestKey(v))
	}
	fixture.Put(t, st, layout.ManifestKey(2), []byte("{}"))
	_, _, err := l.At(t.Context(), 2)
	fixture.WantErr(t, err, fence.ErrCorrupt, layout.ManifestKey(2))
}

func TestManifestOverTheLimit(t *testing.T) {
	st := memstore.New(nil)
	f := testFormat()
	f.Limits.Manifest = 1 << 20
	fixture.Put(t, st, layout.ManifestKey(1), bytes.Repeat([]byte(" "), int(f.Limits.Manifest)+1))
	l := With(st, f, &Options{Settle: quick})
	_, err := l.Newest(t.Context())
	fixture.WantErr(t, err, fence.ErrCorrupt, layout.ManifestKey(1))
	_, _, err = l.At(t.Context(), 1)
	fixture.WantErr(t, err, fence.ErrCorrupt, layout.ManifestKey(1))
}

// TestNewestErrors passes on what is no answer, and does not read it as "none".
func TestNewestErrors(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.List, faultstore.Get} {
		st, _ := fixture.Faults(nil)
		apply(t, st, layout.Writer, 1, 2)
		st.SetHook(faultstore.Script(faultstore.Rule{Kind: kind, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
		m, err := testOpen(st).Newest(t.Context())
		if m != nil || !errors.Is(err, store.ErrDenied) {
			t.Errorf("%s: %v, %v", kind, m, err)
		}
	}
	st, _ := fixture.Faults(nil)
	apply(t, st, layout.Writer, 1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := testOpen(st).Newest(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st.OpenBodies() != 0 {
		t.Errorf("%d bodies are open", st.OpenBodies())
	}
}
