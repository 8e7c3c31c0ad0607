package state

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestUpdateNeedsToken(t *testing.T) {
	if _, err := testOpen(memstore.New(nil)).Updater(layout.Writer, fence.Token{}); err == nil {
		t.Error("the zero token was accepted")
	}
}

func TestUpdateCounts(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Writer, 3, 2)
	apply(t, st, layout.Compactor, 1, 1)
	apply(t, st, layout.Writer, 3, 1) // the same token in another process: it goes on counting
	m := newest(t, st)
	if w, c := m.Roles[layout.Writer], m.Roles[layout.Compactor]; m.Version != 4 || w.Epoch != 3 || w.Update != 3 || c.Epoch != 1 || c.Update != 1 {
		t.Errorf("%s", fixture.JSON(t, m))
	}
	apply(t, st, layout.Writer, 4, 1) // a later epoch begins anew
	if w := newest(t, st).Roles[layout.Writer]; w.Epoch != 4 || w.Update != 1 {
		t.Errorf("%+v", w)
	}
}

// TestUpdateOverflow: a count at its end cannot go on, and does not begin again.
func TestUpdateOverflow(t *testing.T) {
	st := memstore.New(nil)
	m := &Manifest{Format: 1, Log: testLog, Version: 1, Floor: frame.Start(), Roles: map[layout.Role]RoleState{layout.Writer: {Epoch: 1, Update: math.MaxUint64}}}
	fixture.Put(t, st, layout.ManifestKey(1), encoded(t, m))
	if _, err := testUpdater(t, st, layout.Writer, 1).Update(t.Context(), effect(uuid.NewString())); err == nil {
		t.Error("it went on")
	}
	m.Version = math.MaxUint64
	fixture.Put(t, st, layout.ManifestKey(m.Version), encoded(t, m))
	_, err := testUpdater(t, st, layout.Writer, 2).Update(t.Context(), effect(uuid.NewString()))
	fixture.WantErr(t, err, fence.ErrCorrupt, layout.ManifestKey(0))
	if got := newest(t, st); len(got.Segments) != 0 {
		t.Errorf("%s", fixture.JSON(t, got))
	}
}

func TestUpdateVoid(t *testing.T) {
	st, _ := fixture.Faults(nil)
	u := testUpdater(t, st, layout.Writer, 1)
	own := errors.New("own")
	for _, want := range []error{ErrVoid, own} {
		if _, err := u.Update(t.Context(), func(*Change) error { return want }); !errors.Is(err, want) {
			t.Error(err)
		}
	}
	if n := st.Counts().Of(faultstore.Put, ""); n != 0 {
		t.Errorf("%d PUTs", n)
	}
	if u.Err() != nil {
		t.Error(u.Err())
	}
}

// TestUpdateOnlyForward: floor and mark are what others have deleted by.
//
// guard:only-forward. Without this check: a faulty program lowers the prune mark from 7 to 4; a reader
// pins version 5, and trusts the pin; what version 5 names was deleted while the mark was 7.
func TestUpdateOnlyForward(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Compactor, 1, 5)
	u := testUpdater(t, st, layout.Compactor, 1)
	if _, err := u.Update(t.Context(), func(m *Change) error { m.PruneMark, m.Start, m.Forgotten = 3, 2, 1; return nil }); err != nil {
		t.Fatal(err)
	}
	for name, back := range map[string]func(*Manifest){
		"floor":             func(m *Manifest) { m.Floor.Position.Seq-- },
		"mark":              func(m *Manifest) { m.PruneMark-- },
		"start":             func(m *Manifest) { m.Start-- },
		"what is forgotten": func(m *Manifest) { m.Forgotten-- },
	} {
		_, err := u.Update(t.Context(), func(m *Change) error { back(m.Manifest); return nil })
		if err == nil {
			t.Errorf("%s moved back", name)
		}
	}
	if m := newest(t, st); m.Version != 6 {
		t.Errorf("published %d", m.Version)
	}
}

// TestUpdateRefusesNonsense before it is sent, and above the limit.
func TestUpdateRefusesNonsense(t *testing.T) {
	st, _ := fixture.Faults(nil)
	f := testFormat()
	f.Limits.Manifest = 300 << 10
	u, err := With(st, f, &Options{Settle: quick}).Updater(layout.Compactor, fence.NewToken(1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = u.Update(t.Context(), func(m *Change) error {
		m.Segments = []Segment{{Key: "data/x"}}
		return nil
	})
	fixture.WantErr(t, err, fence.ErrCorrupt, "refusing to publish")
	_, err = u.Update(t.Context(), func(m *Change) error {
		for range 3000 {
			m.Roles[layout.Role(uuid.NewString())] = RoleState{Epoch: 1, Update: 1}
		}
		return nil
	})
	fixture.WantErr(t, err, fence.ErrLimit, "the log allows 307200")
	if n := st.Counts().Of(faultstore.Put, ""); n != 0 {
		t.Errorf("%d PUTs", n)
	}
}

// TestUpdateTakesOutHints that the floor has reached.
func TestUpdateTakesOutHints(t *testing.T) {
	st := memstore.New(nil)
	u := testUpdater(t, st, layout.Writer, 1)
	m, err := u.Update(t.Context(), func(m *Change) error {
		h := m.Floor
		h.Position.Seq, h.Offset = 3, 2
		m.Hint = &h
		return nil
	})
	if err != nil || m.Hint == nil {
		t.Fatalf("%+v, %v", m, err)
	}
	for i, want := range []bool{true, false, false} {
		if m, err = u.Update(t.Context(), effect(uuid.NewString())); err != nil || (m.Hint != nil) != want {
			t.Errorf("after %d: %+v, %v", i+1, m.Hint, err)
		}
	}
}

// TestUpdaterFenced by a later epoch of its role and no other: at once, for ever.
func TestUpdaterFenced(t *testing.T) {
	st, _ := fixture.Faults(nil)
	u := testUpdater(t, st, layout.Writer, 2)
	apply(t, st, layout.Compactor, 9, 1)
	if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
		t.Fatal(err)
	}
	apply(t, st, layout.Writer, 3, 1)
	for range 2 {
		m, err := u.Update(t.Context(), effect(uuid.NewString()))
		var by *fence.FencedError
		if m != nil || !errors.Is(err, fence.ErrFenced) || !errors.As(err, &by) || by.Epoch != 2 || by.By != 3 || by.Role != "writer" {
			t.Errorf("%v, %v", m, err)
		}
		if !errors.Is(u.Err(), fence.ErrFenced) {
			t.Error(u.Err())
		}
		st.ResetCounts()
	}
	st.ResetCounts()
	_, _ = u.Update(t.Context(), effect(uuid.NewString()))
	if n := st.Counts().Of("", ""); n != 0 {
		t.Errorf("who is fenced made %d requests", n)
	}
	if m := newest(t, st); m.Version != 3 || len(m.Segments) != 3 {
		t.Errorf("%d with %d effects", m.Version, len(m.Segments))
	}
}

// TestFencedInAHole: the zombie reads 5, the successor makes 6 to 9, 6 is pruned,
// and the zombie's create of 6 succeeds. No refusal ever tells it.
//
// guard:role-epoch. Without this check: zombie A has read manifest 50; successor B publishes manifests
// 51 to 90, and manifest 51 is pruned; A creates another manifest 51 in the hole; A then reads manifest
// 90, does not find its update there, and publishes it again as manifest 91, beside B.
func TestFencedInAHole(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Writer, 1, 5)
	u := testUpdater(t, st, layout.Writer, 1)
	tries := 0
	_, err := u.Update(t.Context(), func(m *Change) error {
		if tries++; tries == 1 {
			apply(t, st, layout.Writer, 2, 4)
			mustPrune(t, st)
		}
		return effect("00000000-0000-4000-8000-00000000beef")(m)
	})
	if !errors.Is(err, fence.ErrFenced) || tries != 1 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if _, _, err := testOpen(st).At(t.Context(), 6); err != nil {
		t.Error("the create should have succeeded:", err)
	}
	if m := newest(t, st); m.Version != 9 || len(m.Segments) != 9 {
		t.Errorf("%d with %d effects", m.Version, len(m.Segments))
	}
}

// TestAppliedThoughRefused: the create is applied and its reply lost; others
// build on it, it is pruned, and a zombie fills its number. The answer to the
// second attempt is 412, and the object there is another's. Yet it was applied.
//
// guard:update-count. Each manifest has the count and the nonce of the newest update of the writer, and
// of the compactor. An object whose create was refused may have been applied and pruned, and the hole
// filled. Without this reading: zombie Z reads manifest 50, and sleeps; others publish manifests up to
// 90, and manifest 51 is pruned; Z creates another manifest 51 in the hole, and reports its update as
// applied; nobody ever reads this manifest 51.
func TestAppliedThoughRefused(t *testing.T) {
	for _, successor := range []bool{false, true} {
		st, inner := fixture.Faults(nil)
		apply(t, st, layout.Writer, 1, 5)
		u := testUpdater(t, st, layout.Writer, 1)
		st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Err: faultstore.ErrTimeout}}))
		st.SetAfter(func(_ context.Context, op faultstore.Op, err error) {
			if op.Kind != faultstore.Put || err == nil {
				return
			}
			st.SetAfter(nil)
			apply(t, inner, layout.Compactor, 1, 2)
			if successor {
				apply(t, inner, layout.Writer, 2, 1)
			}
			mustPrune(t, inner)
			fixture.Put(t, inner, layout.ManifestKey(6), junk(t, 6))
		})
		id := uuid.NewString()
		tries := 0
		_, err := u.Update(t.Context(), func(m *Change) error { tries++; return effect(id)(m) })
		if successor != errors.Is(err, fence.ErrFenced) || !successor && err != nil {
			t.Errorf("successor %t: %v", successor, err)
		}
		if n := count(effects(newest(t, inner)), id); n != 1 || tries != 1 {
			t.Errorf("applied %d times in %d tries", n, tries)
		}
	}
}

// TestSameTokenTwice: two processes were given one token. Whoever finds that the
// other has counted in its place is fenced; nothing is applied twice or lost.
//
// guard:update-nonce. Each update carries its number in the epoch and a nonce. Without this check: A
// and B have the same token, and both prepare update 1; B publishes first; A reads B's update, does not
// find its own nonce, and publishes its own update 1 after it; both go on publishing.
func TestSameTokenTwice(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Writer, 1, 2)
	a, b := testUpdater(t, st, layout.Writer, 1), testUpdater(t, st, layout.Writer, 1)
	tries := 0
	_, err := a.Update(t.Context(), func(m *Change) error {
		if tries++; tries == 1 {
			if _, err := b.Update(t.Context(), effect(uuid.NewString())); err != nil {
				t.Error(err)
			}
		}
		return effect(uuid.NewString())(m)
	})
	var by *fence.FencedError
	if !errors.As(err, &by) || by.Epoch != 1 || by.By != 1 || tries != 1 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	fixture.WantErr(t, err, fence.ErrFenced, "another writer was given the same token, of epoch 1")
	if m := newest(t, st); m.Version != 3 || len(m.Segments) != 3 || m.Roles[layout.Writer].Update != 3 {
		t.Errorf("%s", fixture.JSON(t, m))
	}
	if _, err := b.Update(t.Context(), effect(uuid.NewString())); err != nil {
		t.Error(err)
	}
}

// TestUnknownLandsLater: an update is given up while its create is on its way. It
// lands before, after or instead of the next one of the same updater, which tells
// the two apart.
func TestUnknownLandsLater(t *testing.T) {
	for _, when := range []string{"before", "under way", "after", "in a hole"} {
		t.Run(when, func(t *testing.T) {
			st, inner := fixture.Faults(nil)
			apply(t, st, layout.Compactor, 1, 2)
			u := testUpdater(t, st, layout.Compactor, 1)
			first, second := uuid.NewString(), uuid.NewString()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}}}))
			st.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
				if op.Kind == faultstore.Put {
					cancel()
				}
			})
			if _, err := u.Update(ctx, effect(first)); !errors.Is(err, store.ErrUnknown) || errors.Is(err, fence.ErrFenced) {
				t.Fatalf("given up: %v", err)
			}
			st.SetAfter(nil)
			land := func() {
				if n := st.Release(t.Context(), nil); n != 1 {
					t.Errorf("%d landed", n)
				}
			}
			if when == "before" {
				land()
			}
			tries := 0
			_, err := u.Update(t.Context(), func(m *Change) error {
				if tries++; tries == 1 && when == "under way" {
					land()
				}
				return effect(second)(m)
			})
			if err != nil {
				t.Fatal(err)
			}
			switch when {
			case "in a hole":
				apply(t, inner, layout.Writer, 1, 2)
				mustPrune(t, inner)
				land()
				if _, _, err := testOpen(inner).At(t.Context(), 3); err != nil {
					t.Error("it should lie in the hole:", err)
				}
			case "after":
				land()
			}
			ids := effects(newest(t, inner))
			want := map[string]int{"before": 1, "under way": 1}[when]
			if count(ids, first) != want || count(ids, second) != 1 {
				t.Errorf("%s: the first is there %d times, the second %d times", when, count(ids, first), count(ids, second))
			}
			apply(t, inner, layout.Compactor, 1, 1)
			if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
				t.Error("it cannot go on:", err)
			}
		})
	}
}

// TestFoldLandsLate: the fold of unknown outcome has landed when the same records
// are folded again: void, not twice.
//
// guard:fold-floor. Without this check: the outcome of a fold is unknown; the compactor folds the same
// objects again; the first fold is applied after all; the second fold adds the same records once more;
// the manifest's own checks refuse this as damage; the compactor stops with that error instead of
// folding from the new floor.
func TestFoldLandsLate(t *testing.T) {
	st, inner := fixture.Faults(nil)
	apply(t, st, layout.Compactor, 1, 1)
	u := testUpdater(t, st, layout.Compactor, 1)
	from := newest(t, inner).Floor
	to := from
	to.Position.Seq, to.Offset = from.Position.Seq+5, from.Offset+50
	fold := func(id string) func(*Change) error {
		return func(m *Change) error {
			return m.Fold(from, to, nil, []Segment{{Key: layout.SegmentKey(layout.Compactor, 1, id), First: from.Offset, End: to.Offset, Size: 200, Index: 96}}, nil)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}}}))
	st.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
		if op.Kind == faultstore.Put {
			cancel()
		}
	})
	first := uuid.NewString()
	if _, err := u.Update(ctx, fold(first)); !errors.Is(err, store.ErrUnknown) {
		t.Fatal(err)
	}
	st.SetAfter(nil)
	tries := 0
	_, err := u.Update(t.Context(), func(m *Change) error {
		if tries++; tries == 1 {
			st.Release(t.Context(), nil)
		}
		return fold(uuid.NewString())(m)
	})
	if !errors.Is(err, ErrVoid) || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if m := newest(t, inner); len(m.Segments) != 2 || count(effects(m), first) != 1 || !m.Floor.Equal(to) {
		t.Errorf("%s", fixture.JSON(t, m))
	}
}

// TestUpdaterTakesTurns: one update at a time, and who waits can give up.
func TestUpdaterTakesTurns(t *testing.T) {
	st := memstore.New(nil)
	u := testUpdater(t, st, layout.Writer, 1)
	inside, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := u.Update(t.Context(), func(m *Change) error {
			close(inside)
			<-leave
			return effect(uuid.NewString())(m)
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	cause := errors.New("had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for range 50 { // both its turn and its context may be chosen
		_, err := u.Update(ctx, func(*Change) error { t.Error("two at a time"); return nil })
		var asked *store.Error
		if !errors.Is(err, cause) || errors.Is(err, store.ErrUnknown) || errors.As(err, &asked) {
			t.Fatalf("it did not wait for its turn: %v", err)
		}
	}
	if u.Err() != nil {
		t.Error(u.Err()) // does not wait for its turn
	}
	for range 3 {
		all.Go(func() {
			if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
				t.Error(err)
			}
		})
	}
	close(leave)
	all.Wait()
	if m := newest(t, st); m.Version != 4 || len(m.Segments) != 4 || m.Roles[layout.Writer].Update != 4 {
		t.Errorf("%s", fixture.JSON(t, m))
	}
	// A function that panics gives its turn back.
	func() {
		defer func() { _ = recover() }()
		_, _ = u.Update(t.Context(), func(*Change) error { panic("in f") })
	}()
	if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
		t.Error(err)
	}
}

// TestUpdateErrors: what was turned away was not applied, and says so; what may
// have been applied is unknown.
func TestUpdateErrors(t *testing.T) {
	deny := faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
	tests := map[string]struct {
		rule    faultstore.Rule
		unknown bool
		applied int
	}{
		"cannot list": {faultstore.Rule{Kind: faultstore.List, Times: -1, Fault: deny}, false, 0},
		"cannot put":  {faultstore.Rule{Kind: faultstore.Put, Times: -1, Fault: deny}, false, 0},
		// The second listing is the one that would tell.
		"cannot look": {faultstore.Rule{Kind: faultstore.List, Skip: 1, Times: -1, Fault: deny}, true, 1},
	}
	for name, tt := range tests {
		st, inner := fixture.Faults(nil)
		u := testUpdater(t, st, layout.Writer, 1)
		st.SetHook(faultstore.Script(tt.rule))
		id := uuid.NewString()
		_, err := u.Update(t.Context(), effect(id))
		if !errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrUnknown) != tt.unknown {
			t.Errorf("%s: %v", name, err)
		}
		if n := count(effects(newest(t, inner)), id); n != tt.applied {
			t.Errorf("%s: applied %d times", name, n)
		}
		st.SetHook(nil)
		if _, err := u.Update(t.Context(), effect(uuid.NewString())); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

func TestWritten(t *testing.T) {
	st := memstore.New(nil)
	before := time.Now().Truncate(time.Millisecond)
	apply(t, st, layout.Writer, 1, 1)
	if w := newest(t, st).Written; w.Before(before) || w.Location() != time.UTC {
		t.Errorf("written at %v, begun at %v", w, before)
	}
}
