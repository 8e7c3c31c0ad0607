package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"

	_ "github.com/fencepost/fencepost/store/s3store"
)

// life is a log that is in use.
type life struct {
	t     *testing.T
	st    store.Store
	files store.Store // nil: the log has no second store
	epoch fence.Epoch
	n     int
}

// lead is a leadership that appends records and adds a file, removes the one before, and ends.
func (l *life) lead() {
	l.t.Helper()
	l.epoch++
	w, err := writer.Open(l.t.Context(), l.st, fence.NewToken(l.epoch), &writer.Options{Files: l.files})
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := w.Close(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	}()
	for range 3 {
		if _, err := w.Append(l.t.Context(), [][]byte{fmt.Appendf(nil, "record %d\n", l.n)}); err != nil {
			l.t.Fatal(err)
		}
		l.n++
	}
	f, err := w.CreateFile(l.t.Context(), ".parquet", 0)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := io.WriteString(f, strings.Repeat("rows", l.n)); err != nil {
		l.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		l.t.Fatal(err)
	}
	if err := w.CommitFiles(l.t.Context(), manifest.Edit{Add: []manifest.File{f.File()}}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) compact() {
	l.t.Helper()
	c, err := compactor.New(l.st, &compactor.Options{Token: fence.NewToken(l.epoch), Files: l.files})
	if err == nil {
		_, err = c.Once(l.t.Context())
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// begun is a log with some history, folded and not.
func begun(t *testing.T, st store.Store) *life {
	t.Helper()
	l := &life{t: t, st: st}
	l.begin()
	return l
}

func (l *life) begin() {
	l.t.Helper()
	for range 3 {
		l.lead()
		l.compact()
	}
	l.lead()
}

func contents(t *testing.T, st store.Store) []string {
	t.Helper()
	all, err := logtest.Read(st, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func pins(t *testing.T, st store.Store) (names []string) {
	t.Helper()
	r, err := reader.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Pins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}

func newLog(t *testing.T) store.Store { return logtest.New(t, logtest.Format(), nil).Mem }

// TestJunkInTheChain: after a backup has pinned a version, its chain is folded. A compactor deletes one
// slot, and sleeps before it deletes those before it. A zombie puts an object into the hole: a seal
// that leads to an epoch without objects, a seal that leads into one that has some, or data. The
// backup is whole all the same.
func TestJunkInTheChain(t *testing.T) {
	for name, junk := range map[string]func(l *logtest.Log, p fence.Position) []byte{
		"to nowhere":     func(l *logtest.Log, p fence.Position) []byte { return l.Seal(p, 99) },
		"to a live one":  func(l *logtest.Log, p fence.Position) []byte { return l.Seal(p, 5) },
		"no seal at all": func(l *logtest.Log, p fence.Position) []byte { return l.Data(frame.Point{Position: p}, "junk") },
	} {
		log := logtest.New(t, logtest.Format(), nil)
		l := begun(t, log.Mem)
		want := contents(t, log.Mem)
		floor := log.Newest().Floor.Position
		hole := logtest.At(4, 3)
		if !floor.Before(hole) || !log.Has(layout.DataKey(hole)) {
			t.Fatalf("the floor is %v: the test needs objects up to %v after it", floor, hole)
		}
		f := faultstore.New(log.Mem, nil)
		met := f.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.List && op.Key == layout.DataPrefix
		}, func(context.Context) {
			before := log.Objects()
			l.lead()
			l.compact()
			for key, body := range before {
				if p, ok := layout.ParseDataKey(key); ok && p.Before(hole) && !log.Has(key) {
					log.Put(key, body) // it is not deleted yet
				}
			}
			if log.Has(layout.DataKey(hole)) {
				t.Errorf("%s: %v is no hole", name, hole)
			}
			log.Put(layout.DataKey(hole), junk(log, hole))
		})
		to := named("backup")
		r, err := backup.Make(t.Context(), f, to, nil)
		if err != nil || !met() || !r.Verified {
			t.Errorf("%s: met %t: %+v, %v", name, met(), r, err)
			continue
		}
		if got := contents(t, to); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s: the backup has %d records, and there were %d before", name, len(got), len(want))
		}
	}
}

// TestJunkWhereTheCopyHasData: a backup has a log object. The log folds and prunes it, and a zombie puts a seal into the hole. The backup is
// brought up to date before a compactor deletes that seal: it is no damaged copy.
func TestJunkWhereTheCopyHasData(t *testing.T) {
	log, to := logtest.New(t, logtest.Format(), nil), named("backup")
	l := begun(t, log.Mem)
	if _, err := backup.Make(t.Context(), log.Mem, to, nil); err != nil {
		t.Fatal(err)
	}
	before, met := objects(t, to), 0
	for range 2 {
		l.lead()
		l.compact()
	}
	for key, body := range before {
		if p, ok := layout.ParseDataKey(key); ok && !log.Has(key) && len(body) > frame.HeaderSize {
			log.Put(key, log.Seal(p, 99))
			met++
		}
	}
	if _, err := backup.Make(t.Context(), log.Mem, to, nil); err != nil || met == 0 {
		t.Errorf("%d seals: %v", met, err)
	}
	whole(t, to, &verify.Options{Copy: true})
	if got, want := contents(t, to), contents(t, log.Mem); !slices.Equal(got, want) {
		t.Errorf("the backup has %d records, want %d", len(got), len(want))
	}
}

// guard:backup-chain. The hole with the junk seal is where the log ended when the backup began, so no manifest and no object says that
// there was more. The backup is whole all the same.
func TestJunkAtTheEnd(t *testing.T) {
	for _, unread := range []bool{false, true} {
		log := logtest.New(t, logtest.Format(), nil)
		l := begun(t, log.Mem)
		w, err := writer.Open(t.Context(), log.Mem, fence.NewToken(l.epoch+1), nil)
		if err == nil {
			_, err = w.Append(t.Context(), [][]byte{[]byte("last")})
		}
		if err != nil {
			t.Fatal(err)
		}
		want, hole := contents(t, log.Mem), logtest.At(l.epoch+1, 1)
		f := faultstore.New(log.Mem, nil)
		met := f.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.List && op.Key == layout.DataPrefix
		}, func(context.Context) {
			before := log.Objects()
			l.compact()
			for key, body := range before {
				if p, ok := layout.ParseDataKey(key); ok && p.Before(hole) && !log.Has(key) {
					log.Put(key, body) // it is not deleted yet
				}
			}
			if log.Has(layout.DataKey(hole)) {
				t.Errorf("%v is no hole", hole)
			}
			log.Put(layout.DataKey(hole), log.Seal(hole, 99))
		})
		to := named("backup")
		if _, err := backup.Make(t.Context(), f, to, &backup.Options{NoVerify: unread}); err != nil || !met() {
			t.Errorf("unread %t: met %t: %v", unread, met(), err)
		} else if got := contents(t, to); !slices.Equal(got, want) {
			t.Errorf("unread %t: the backup has %d records, and there were %d before", unread, len(got), len(want))
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestBackupOfABusyLog: while it is copied, the log is written, and compacted so that what no
// pin holds is deleted at once. The copy is whole, and has all that was acknowledged before.
func TestBackupOfABusyLog(t *testing.T) {
	for every := 1; every <= 16; every++ {
		st := newLog(t)
		l := begun(t, st)
		before := contents(t, st)
		f := faultstore.New(st, nil)
		var busy sync.Mutex
		requests := 0
		f.SetBefore(func(context.Context, faultstore.Op) {
			if !busy.TryLock() {
				return
			}
			defer busy.Unlock()
			if l.epoch > 6 {
				return
			}
			if requests++; requests%every == 0 {
				l.lead()
				l.compact()
			}
		})
		to, restored := memstore.New(nil), memstore.New(nil)
		r, err := backup.Make(t.Context(), f, to, nil)
		if err != nil {
			t.Fatalf("every %d: %v", every, err)
		}
		got := contents(t, to)
		if len(got) < len(before) || !slices.Equal(got[:len(before)], before) || int(r.End) != len(got) || !r.Verified {
			t.Errorf("every %d: %d records, want %d and more: %+v", every, len(got), len(before), r)
		}
		if p := pins(t, st); len(p) > 0 {
			t.Errorf("every %d: left are the pins %q", every, p)
		}
		if _, err := backup.Restore(t.Context(), to, restored, quick); err != nil {
			t.Fatalf("every %d: %v", every, err)
		}
		if again := contents(t, restored); !slices.Equal(again, got) {
			t.Errorf("every %d: %d records were restored of %d", every, len(again), len(got))
		}
	}
}

// killed runs something again and again, and lets each of its requests to a store fail once. It
// returns how many objects the last run found there.
func killed(t *testing.T, to store.Store, run func(to store.Store) (*backup.Report, error)) (present int) {
	t.Helper()
	broken := errors.New("the process is killed")
	for after := 1; ; after++ {
		var n atomic.Int64
		hook := func(op faultstore.Op) faultstore.Fault {
			if n.Add(1) >= int64(after) {
				return faultstore.Fault{Drop: true, Err: &store.Error{Op: "test", Key: op.Key, Kind: store.ErrDenied, Err: broken}}
			}
			return faultstore.Fault{}
		}
		r, err := run(faultstore.New(to, &faultstore.Options{Hook: hook}))
		if err == nil {
			return r.Present
		}
		if !errors.Is(err, broken) {
			t.Fatalf("after %d requests: %v", after, err)
		}
	}
}

// TestResume: each request of a backup, and of a restore, fails once. The next call goes on,
// and in the end all is there.
func TestResume(t *testing.T) {
	src, back, restored := newLog(t), memstore.New(nil), memstore.New(nil)
	begun(t, src)
	want := contents(t, src)
	if n := killed(t, back, func(to store.Store) (*backup.Report, error) { return backup.Make(t.Context(), src, to, nil) }); n == 0 {
		t.Error("the last backup has copied everything again")
	}
	if p := pins(t, src); len(p) > 0 {
		t.Errorf("left are the pins %q", p)
	}
	if n := killed(t, restored, func(to store.Store) (*backup.Report, error) { return backup.Restore(t.Context(), back, to, quick) }); n == 0 {
		t.Error("the last restore has copied everything again")
	}
	if got := contents(t, restored); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAgain: a backup that is done is brought up to date.
func TestAgain(t *testing.T) {
	src, to := newLog(t), memstore.New(nil)
	l := begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	l.compact()
	l.lead()
	r, err := backup.Make(t.Context(), src, to, nil)
	if err != nil || r.Present == 0 || r.Present == r.Objects {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, want := contents(t, to), contents(t, src); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPinOfOthers: the note of a backup names a pin that no backup has made. It stays.
func TestPinOfOthers(t *testing.T) {
	src, to := newLog(t), memstore.New(nil)
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	r, err := reader.Open(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pin(t.Context(), "audit", 0, 0); err != nil {
		t.Fatal(err)
	}
	note := objects(t, to)[backup.NoteKey]
	named := regexp.MustCompile(`"pin": ?"[^"]*"`).ReplaceAll(note, []byte(`"pin": "audit"`))
	if bytes.Equal(note, named) {
		t.Fatalf("%s", note)
	}
	fixture.Put(t, to, backup.NoteKey, document.Sum(backup.NoteKey, named))
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	if pins, err := r.Pins(t.Context()); err != nil || len(pins) != 1 || pins[0].Name != "audit" {
		t.Errorf("%+v, %v", pins, err)
	}
}

// TestRefused: nothing is copied to where something else is, nor from where nothing is whole.
func TestRefused(t *testing.T) {
	src, done := newLog(t), memstore.New(nil)
	f := logtest.Format()
	f.Log = fence.ID{7}
	var other store.Store = logtest.New(t, f, nil).Mem
	begun(t, src)
	begun(t, other)
	if _, err := backup.Make(t.Context(), src, done, nil); err != nil {
		t.Fatal(err)
	}
	half := memstore.New(nil)
	if _, err := half.Put(t.Context(), backup.NoteKey, document.Sum(backup.NoteKey, []byte("{\n \"format\": 1,\n \"done\": false\n}\n")), nil); err != nil {
		t.Fatal(err)
	}
	foreign := memstore.New(nil)
	if _, err := foreign.Put(t.Context(), "data/x", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	for says, run := range map[string]func() (*backup.Report, error){
		"holds no backup":       func() (*backup.Report, error) { return backup.Make(t.Context(), src, other, nil) },
		"holds a backup of log": func() (*backup.Report, error) { return backup.Make(t.Context(), other, done, nil) },
		"a log in":              func() (*backup.Report, error) { return backup.Restore(t.Context(), done, src, quick) },
		"is not empty":          func() (*backup.Report, error) { return backup.Restore(t.Context(), done, foreign, quick) },
		"is not complete":       func() (*backup.Report, error) { return backup.Restore(t.Context(), half, memstore.New(nil), quick) },
		"has no backup.json":    func() (*backup.Report, error) { return backup.Restore(t.Context(), src, memstore.New(nil), quick) },
		"no log here":           func() (*backup.Report, error) { return backup.Make(t.Context(), memstore.New(nil), done, nil) },
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
}

// TestRotOfTheNote: whatever bit of backup.json flips, nothing is restored from it, and no backup goes on with it.
func TestRotOfTheNote(t *testing.T) {
	src, to := newLog(t), memstore.New(nil)
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	body, _, err := store.Read(t.Context(), to, backup.NoteKey, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(body) {
		rotten := bytes.Clone(body)
		rotten[bit/8] ^= 1 << (bit % 8)
		fixture.Put(t, to, backup.NoteKey, rotten)
		back := memstore.New(nil)
		if _, err := backup.Restore(t.Context(), to, back, quick); !errors.Is(err, fence.ErrCorrupt) {
			t.Fatalf("bit %d: restore: %v", bit, err)
		}
		for info := range back.List(t.Context(), "", nil) {
			t.Fatalf("bit %d: restore has written %s", bit, info.Key)
		}
		if _, err := backup.Make(t.Context(), src, to, nil); !errors.Is(err, fence.ErrCorrupt) {
			t.Fatalf("bit %d: backup: %v", bit, err)
		}
	}
}

// TestRotIsFound: a backup is read before it counts.
func TestRotIsFound(t *testing.T) {
	src, to := newLog(t), memstore.New(nil)
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, rotting{to, layout.SegmentPrefix}, nil); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "not whole") || !strings.Contains(err.Error(), "run the same command again") {
		t.Errorf("%v", err)
	}
	if _, err := backup.Restore(t.Context(), to, memstore.New(nil), quick); err == nil || !strings.Contains(err.Error(), "not complete") {
		t.Errorf("%v", err)
	}
}

// copyOf copies a small store.
func copyOf(t *testing.T, from, to store.Store) {
	t.Helper()
	for info, err := range from.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := store.Read(t.Context(), from, info.Key, &store.ReadOptions{Limit: 1 << 20})
		if err == nil {
			_, err = to.Put(t.Context(), info.Key, b, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEpochsOfTheRestored: leaders that the original had after the backup, and their zombies,
// are before the next leader of the restored log; and nobody waits for the one in the backup.
// TestVerifyOfTheRestored: verify has nothing against a log that was restored, although it lacks versions that
// no prune mark has passed. In a log that was not restored they are a problem.
func TestVerifyOfTheRestored(t *testing.T) {
	src, back, to := newLog(t), memstore.New(nil), memstore.New(nil)
	l := &life{t: t, st: src}
	for range 3 {
		l.lead()
	}
	if _, err := backup.Make(t.Context(), src, back, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), back, to, quick); err != nil {
		t.Fatal(err)
	}
	v, err := verify.Run(t.Context(), to, nil)
	if err != nil || len(v.Problems) > 0 || len(v.Notes) == 0 || !strings.Contains(v.Notes[0].What, "restored from a backup") {
		t.Errorf("%+v, %v", v, err)
	}
	if err := src.Delete(t.Context(), layout.ManifestKey(1)); err != nil {
		t.Fatal(err)
	}
	if v, err := verify.Run(t.Context(), src, nil); err != nil || len(v.Problems) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestEpochsOfTheRestored(t *testing.T) {
	src, back, to := newLog(t), memstore.New(nil), memstore.New(nil)
	e, err := leader.New(src, layout.LockPrefix, &leader.Options{Identity: "original"})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), src, term.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), [][]byte{[]byte("a")}); err != nil {
		t.Fatal(err)
	}
	(&life{t: t, st: src, epoch: 1}).compact()
	if _, err := backup.Make(t.Context(), src, back, nil); err != nil {
		t.Fatal(err)
	}
	r, err := backup.Restore(t.Context(), back, to, quick)
	if err != nil || r.Epoch <= term.Epoch()+backup.EpochGap {
		t.Fatalf("%+v, %v", r, err)
	}
	next, err := leader.New(to, layout.LockPrefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := next.Campaign(t.Context())
	if err != nil || after.Epoch() < r.Epoch {
		t.Fatalf("%v, %v", after, err)
	}
	w2, err := writer.Open(t.Context(), to, after.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w2.Append(t.Context(), [][]byte{[]byte("b")}); err != nil {
		t.Fatal(err)
	}
	// The original goes on as if nothing had happened.
	if _, err := w.Append(t.Context(), [][]byte{[]byte("c")}); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, to); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
	for _, c := range []io.Closer{closer{w, t}, closer{w2, t}} {
		_ = c.Close()
	}
	_ = term.Resign(t.Context())
	_ = after.Resign(t.Context())
}

type closer struct {
	w *writer.Writer
	t *testing.T
}

func (c closer) Close() error { return c.w.Close(c.t.Context()) }
