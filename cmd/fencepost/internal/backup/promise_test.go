package backup_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// quick are options of a restore whose probe takes no time.
var quick = &backup.Options{Probe: quickProbe}

// chained makes a backup that is killed after it has copied the chain, and before it writes its manifest.
func chained(t *testing.T, src, to store.Store) {
	t.Helper()
	broken := errors.New("the process is killed")
	_, err := backup.Make(t.Context(), src, faultstore.New(to, &faultstore.Options{Hook: func(op faultstore.Op) faultstore.Fault {
		if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.ManifestPrefix) {
			return faultstore.Fault{Drop: true, Err: &store.Error{Op: "test", Key: op.Key, Kind: store.ErrDenied, Err: broken}}
		}
		return faultstore.Fault{}
	}}), nil)
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

// TestResumedIsNew: a backup that goes on with an earlier one has also what was acknowledged since.
func TestResumedIsNew(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	chained(t, src, to)
	l.lead()
	want := contents(t, src)
	r, err := backup.Make(t.Context(), src, to, nil)
	if err != nil || !r.Verified || int(r.End) != len(want) {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := contents(t, to); !slices.Equal(got, want) {
		t.Errorf("the backup has %d records, want %d", len(got), len(want))
	}
	if p := pins(t, src); len(p) > 0 {
		t.Errorf("left are the pins %q", p)
	}
}

// TestRestoreProbes: a restore refuses a store that ignores conditions, before it copies anything. The
// format of a restored log has the report of its own store.
func TestRestoreProbes(t *testing.T) {
	src, back, bad, good := newLog(t), named("backup"), overwriting{named("bad")}, named("good")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, back, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), back, bad, quick); !errors.Is(err, probe.ErrRefused) {
		t.Errorf("%v", err)
	}
	onlyMark(t, bad)
	if _, err := backup.Restore(t.Context(), back, good, quick); err != nil {
		t.Fatal(err)
	}
	if f, err := manifest.ReadFormat(t.Context(), good, nil); err != nil || f.Probe == nil || f.Probe.Store != "mem://good" || len(f.Probe.Kept) == 0 {
		t.Errorf("%+v, %v", f.Probe, err)
	}
}

// TestRestoreOfARestored: a log is restored, backed up at once, lives on, and is lost. The log that is
// restored from that backup has epochs after all of them.
func TestRestoreOfARestored(t *testing.T) {
	src, first, one, second, two := newLog(t), named("first"), named("one"), named("second"), named("two")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, first, nil); err != nil {
		t.Fatal(err)
	}
	r1, err := backup.Restore(t.Context(), first, one, quick)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Make(t.Context(), one, second, nil); err != nil {
		t.Fatal(err)
	}
	e, err := leader.New(one, layout.LockPrefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r2, err := backup.Restore(t.Context(), second, two, quick)
	if err != nil || r2.Epoch <= term.Epoch() || r2.Epoch < r1.Epoch+backup.EpochGap {
		t.Errorf("the next epoch is %d, after %d, and %d has led: %v", r2.Epoch, r1.Epoch, term.Epoch(), err)
	}
	// The same restore again takes the lock that it wrote for its own.
	if r, err := backup.Restore(t.Context(), second, two, quick); err != nil || r.Epoch != r2.Epoch {
		t.Errorf("%+v, %v", r, err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// guard:restore-epochs. Without this check: a restore raises the epochs, and is interrupted; the original has much later leaders, whose
// tokens come from elsewhere, and its backup gets the newest lock; the restore goes on and finds its own lock; a zombie of the original has
// the epoch of a new leader, and gates accept both.
func TestResumedAfterLaterEpochs(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	slow, raised := faultstore.New(back, nil), false
	met := slow.BeforeFirst(func(op faultstore.Op) bool {
		raised = raised || op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.LockPrefix)
		return raised && op.Kind == faultstore.Put && op.Key == layout.FormatKey
	}, func(context.Context) { kill() })
	if _, err := backup.Restore(ctx, to, slow, quick); !met() || !errors.Is(err, context.Canceled) {
		t.Fatalf("%t, %v", met(), err)
	}
	e, err := leader.New(src, layout.LockPrefix, &leader.Options{MinEpoch: 3 * backup.EpochGap})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err == nil {
		err = term.Resign(t.Context())
	}
	if err == nil {
		_, err = backup.Make(t.Context(), src, to, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := backup.Restore(t.Context(), to, back, quick); err != nil || r.Epoch < term.Epoch()+backup.EpochGap {
		t.Errorf("the next epoch is %d, and %d has led: %v", r.Epoch, term.Epoch(), err)
	}
}

// lose deletes the last objects of the chain in a store.
func lose(t *testing.T, st store.Store, n int) {
	t.Helper()
	var all []fence.Position
	for info, err := range st.List(t.Context(), layout.DataPrefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := layout.ParseDataKey(info.Key); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b fence.Position) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	for _, p := range all[len(all)-n:] {
		if err := st.Delete(t.Context(), layout.DataKey(p)); err != nil {
			t.Fatal(err)
		}
	}
}

// meanwhile calls do before the first put of an object that has some text.
type meanwhile struct {
	store.Store
	text string
	do   func()
	once sync.Once
}

func (m *meanwhile) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if key == backup.NoteKey && strings.Contains(strings.ReplaceAll(string(body), " ", ""), m.text) {
		m.once.Do(m.do)
	}
	return m.Store.Put(ctx, key, body, opts)
}

// TestTwoBackupsAtOnce: one sleeps before it says that it is complete, and another one completes a later version. The
// first one fails, and the later version can be restored.
func TestTwoBackupsAtOnce(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	var want []string
	slow := &meanwhile{Store: to, text: `"done":true`, do: func() {
		l.lead()
		want = contents(t, src)
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Error(err)
		}
	}}
	if _, err := backup.Make(t.Context(), src, slow, nil); err == nil || !strings.Contains(err.Error(), "another backup to ") {
		t.Errorf("the first one: %v", err)
	}
	back := named("back")
	if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, back); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
}

// TestRestoredLogIsUsedAtOnce: a leader appends as soon as there is a log. A restore that is called again does not say that
// something is lost.
func TestRestoredLogIsUsedAtOnce(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	o := &backup.Options{Probe: quickProbe, Progress: func(stage string, _, _ int64) {
		if _, err := manifest.ReadFormat(t.Context(), back, nil); strings.HasPrefix(stage, "verifying") && !errors.Is(err, manifest.ErrRestoring) {
			t.Errorf("%s: it is a log before it is verified: %v", stage, err)
		}
	}}
	if _, err := backup.Restore(t.Context(), to, back, o); err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), back, fence.NewToken(1<<40), nil)
	if err == nil {
		_, err = w.Append(t.Context(), [][]byte{[]byte("at once")})
	}
	if err == nil {
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := backup.Restore(t.Context(), to, back, quick); err == nil || errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "has been used since") {
		t.Errorf("called again: %v", err)
	}
}

// TestLostEnd: a backup that has lost the end of its chain is not restored. One that was not complete is made whole.
func TestLostEnd(t *testing.T) {
	for n := 1; n <= 3; n++ {
		src, to, half := newLog(t), named("backup"), named("half")
		l := begun(t, src)
		// No manifest says yet that the last of these are acknowledged, unless a checkpoint comes meanwhile.
		w, err := writer.Open(t.Context(), src, fence.NewToken(l.epoch+1), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			if _, err := w.Append(t.Context(), [][]byte{[]byte("late")}); err != nil {
				t.Fatal(err)
			}
		}
		chained(t, src, half)
		lose(t, half, n)
		if _, err := backup.Make(t.Context(), src, half, nil); err != nil || !slices.Equal(contents(t, half), contents(t, src)) {
			t.Errorf("%d lost: a backup went on: %v", n, err)
		}
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
		used := named("used")
		if _, err := backup.Restore(t.Context(), to, used, quick); err != nil {
			t.Fatal(err)
		}
		all := len(contents(t, used))
		lose(t, used, n)
		if _, err := backup.Restore(t.Context(), to, used, &backup.Options{NoVerify: true}); !errors.Is(err, fence.ErrCorrupt) {
			t.Errorf("%d lost: a restore that was called again: %v", n, err)
		}
		lose(t, to, n)
		back := named("back")
		_, err = backup.Restore(t.Context(), to, back, &backup.Options{Probe: quickProbe, NoVerify: true})
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("ended after %d records", all)) && !strings.Contains(err.Error(), "it cannot be copied again") || !strings.Contains(err.Error(), "restore another") {
			t.Errorf("%d lost: %v", n, err)
		}
		if _, err := manifest.ReadFormat(t.Context(), back, nil); err == nil {
			t.Errorf("%d lost: it became a log", n)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// Or it loses the end while it is made, and gets it again.
	src, to := newLog(t), named("backup")
	begun(t, src)
	losing := faultstore.New(to, nil)
	met := losing.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Put && layout.KindOf(op.Key) == layout.KindManifest
	}, func(context.Context) { lose(t, to, 1) })
	_, err := backup.Make(t.Context(), src, losing, nil)
	if err == nil {
		whole(t, to, &verify.Options{Copy: true})
	} else if !errors.Is(err, fence.ErrCorrupt) {
		t.Error(err)
	}
	if err == nil && !slices.Equal(contents(t, to), contents(t, src)) || !met() {
		t.Errorf("%t, %v", met(), err)
	}
}

// TestUpdateKeepsTheLast: an update is killed at each of its requests. Whenever that is, the
// backup can be restored: as it was before, or as it is now.
func TestUpdateKeepsTheLast(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	before := contents(t, src)
	l.compact()
	l.lead()
	l.compact()
	l.lead()
	after := contents(t, src)
	restored := func() []string {
		back := memstore.New(nil)
		if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
			t.Fatal(err)
		}
		return contents(t, back)
	}
	broken := errors.New("the process is killed")
	for n := int64(1); ; n++ {
		var requests atomic.Int64
		_, err := backup.Make(t.Context(), src, faultstore.New(to, &faultstore.Options{Hook: func(op faultstore.Op) faultstore.Fault {
			if requests.Add(1) >= n {
				return faultstore.Fault{Drop: true, Err: &store.Error{Op: "test", Key: op.Key, Kind: store.ErrDenied, Err: broken}}
			}
			return faultstore.Fault{}
		}}), nil)
		if err == nil {
			break
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if got := restored(); !slices.Equal(got, before) && !slices.Equal(got, after) {
			t.Fatalf("killed after %d requests: %d records, want %d or %d", n, len(got), len(before), len(after))
		}
	}
	if got := restored(); !slices.Equal(got, after) {
		t.Errorf("%d records, want %d", len(got), len(after))
	}
	whole(t, to, &verify.Options{Copy: true})
}

// TestUpdateIsNotSound: an update that fails its check leaves the last backup.
func TestUpdateIsNotSound(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	l := begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	before := contents(t, src)
	l.compact()
	l.lead()
	if _, err := backup.Make(t.Context(), src, rotting{to, layout.SegmentPrefix}, nil); !errors.Is(err, fence.ErrCorrupt) {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, back); !slices.Equal(got, before) {
		t.Errorf("%d records, want %d", len(got), len(before))
	}
}

// TestAnotherHistory: two logs of one identity have objects of the same names and sizes. A backup of one of
// them is not brought up to date with the other.
func TestAnotherHistory(t *testing.T) {
	src, other, to := newLog(t), memstore.New(nil), named("backup")
	l := begun(t, src)
	copyOf(t, src, other)
	for st, record := range map[store.Store]string{src: "one", other: "two"} {
		w, err := writer.Open(t.Context(), st, fence.NewToken(l.epoch+1), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Append(t.Context(), [][]byte{[]byte(record)}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Make(t.Context(), other, to, nil); err == nil || !strings.Contains(err.Error(), "mem://backup has another history of this log, which went on differently: back up to a place of its own") {
		t.Errorf("%v", err)
	}
}

// TestAnotherHistoryAtOnce: an object that appears in the destination while it is to be copied there is not taken for the copy.
func TestAnotherHistoryAtOnce(t *testing.T) {
	src, to, other := named("log"), named("backup"), newLog(t)
	copyOf(t, other, src)
	begun(t, src)
	begun(t, other)
	met := false
	listed := noting{to, func() {
		met = true
		copyOf(t, keyed{other, layout.DataPrefix}, to)
	}}
	if _, err := backup.Make(t.Context(), src, listed, nil); !met || err == nil || !strings.Contains(err.Error(), "into mem://backup meanwhile, perhaps of another history of this log: give a place of its own") {
		t.Errorf("%t, %v", met, err)
	}
}

// TestOtherHistoryWasBegun: an interrupted backup, or an interrupted restore, was of another history of the log. What it has left has
// the names and sizes of this one. Nothing goes on with it.
func TestOtherHistoryWasBegun(t *testing.T) {
	src, one, two, back := newLog(t), named("one"), named("two"), named("back")
	l := begun(t, src)
	for n := 0; ; n++ { // until versions and sizes are the same
		log, other := named("log"), named("other")
		var versions []uint64
		for i, c := range []struct{ st, to store.Store }{{log, one}, {other, two}} {
			wipe(t, c.to)
			copyOf(t, src, c.st)
			w, err := writer.Open(t.Context(), c.st, fence.NewToken(l.epoch+1), nil)
			if err == nil {
				_, err = w.Append(t.Context(), [][]byte{{byte(i)}})
			}
			if err == nil {
				err = w.Close(t.Context())
			}
			r := &backup.Report{}
			if err == nil {
				r, err = backup.Make(t.Context(), c.st, c.to, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, r.Version, uint64(r.Bytes))
		}
		to := named("backup")
		chained(t, other, to)
		if _, err := backup.Make(t.Context(), log, to, nil); err == nil {
			t.Error("a backup of another history is complete")
		}
		if slices.Equal(versions[:2], versions[2:]) {
			break
		} else if n > 50 {
			t.Fatal(versions)
		}
	}
	if _, err := backup.Restore(t.Context(), two, rotting{back, layout.SegmentPrefix}, quick); err == nil {
		t.Fatal("the restore is not interrupted")
	}
	if _, err := backup.Restore(t.Context(), one, back, quick); err == nil || !strings.Contains(err.Error(), "another history") {
		t.Errorf("restore: %v", err)
	}
	if _, err := manifest.ReadFormat(t.Context(), back, nil); !errors.Is(err, manifest.ErrRestoring) {
		t.Errorf("it became a log: %v", err)
	}
}

// keyed has only the objects below a prefix.
type keyed struct {
	store.Store
	prefix string
}

func (k keyed) List(ctx context.Context, _ string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	return k.Store.List(ctx, k.prefix, o)
}

// noting does something before each write of the note.
type noting struct {
	store.Store
	before func()
}

func (n noting) Unwrap() store.Store { return n.Store }

func (n noting) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if key == backup.NoteKey {
		n.before()
	}
	return n.Store.Put(ctx, key, body, o)
}

// TestSealThatVerifyMadeAgain: a seal of the log was damaged, and verify --repair has made it again, with another time. A
// backup that has it is brought up to date all the same.
func TestSealThatVerifyMadeAgain(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src).lead()
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	again := 0
	for info, err := range src.List(t.Context(), layout.DataPrefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		b, found, err := store.Read(t.Context(), src, info.Key, &store.ReadOptions{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		f, err := frame.Decode(b, fence.DefaultLimits())
		if err != nil || f.Kind != frame.Seal {
			continue
		}
		h := f.Header
		h.Time = h.Time.Add(time.Hour)
		if _, err := store.Swap(t.Context(), src, info.Key, frame.EncodeSeal(&h, f.Next), found.Version, nil); err != nil {
			t.Fatal(err)
		}
		again++
	}
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil || again == 0 {
		t.Errorf("%d seals: %v", again, err)
	}
}
