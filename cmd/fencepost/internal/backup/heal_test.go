package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// objects returns all that a store has.
func objects(t *testing.T, st store.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := store.Read(t.Context(), st, info.Key, &store.ReadOptions{Limit: 16 << 20})
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = b
	}
	return all
}

// long appends a record that makes an object longer than what is compared.
func (l *life) long(c byte) {
	l.t.Helper()
	l.epoch++
	w, err := writer.Open(l.t.Context(), l.st, fence.NewToken(l.epoch), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	noise := make([]byte, 9<<10) // it does not compress
	for x, i := uint64(c)+1, 0; i < len(noise); i++ {
		x = x*6364136223846793005 + 1442695040888963407
		noise[i] = byte(x >> 56)
	}
	if _, err := w.Append(l.t.Context(), [][]byte{noise}); err != nil {
		l.t.Fatal(err)
	}
	if err := w.Close(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// damages are what can happen to the bytes of an object.
var damages = map[string]func(b []byte) []byte{
	"a bit at its end":    func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
	"a bit in its middle": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	"half is lost":        func(b []byte) []byte { return b[:len(b)/2] },
	"all zeros":           func(b []byte) []byte { return make([]byte, len(b)) },
	"it is empty":         func([]byte) []byte { return nil },
}

// TestDamagedCopy: one object of a complete backup is damaged. The next call copies it again, whatever it is, and says so.
func TestDamagedCopy(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	l.long('a')
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	want := contents(t, src)
	for key, body := range objects(t, to) {
		if key == backup.NoteKey {
			continue // see TestRotOfTheNote
		}
		for name, damage := range damages {
			fixture.Put(t, to, key, damage(bytes.Clone(body)))
			said := ""
			r, err := backup.Make(t.Context(), src, to, &backup.Options{Note: func(format string, args ...any) { said += format }})
			if err != nil || !r.Verified {
				t.Fatalf("%s, %s: %v", key, name, err)
			}
			// Locks are written each time.
			if layout.KindOf(key) != layout.KindLock && layout.KindOf(key) != layout.KindCompactorLock && (r.Healed != 1 || !strings.Contains(said, "is damaged")) {
				t.Errorf("%s, %s: healed %d, said %q", key, name, r.Healed, said)
			}
			whole(t, to, &verify.Options{Copy: true})
			if got := contents(t, to); !slices.Equal(got, want) {
				t.Fatalf("%s, %s: %d records, want %d", key, name, len(got), len(want))
			}
		}
	}
}

// TestLostMeanwhile: the destination loses an object of the chain after it was copied there, and before the end of the copy is
// noted. The backup does not end there: it has all that was acknowledged before it began.
func TestLostMeanwhile(t *testing.T) {
	for n := 1; n <= 3; n++ {
		src, to := newLog(t), named("backup")
		begun(t, src)
		losing := faultstore.New(to, nil)
		met := losing.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.DataPrefix)
		}, func(context.Context) { lose(t, to, n) })
		if _, err := backup.Make(t.Context(), src, losing, nil); err != nil || !met() {
			t.Fatalf("%d lost: %t, %v", n, met(), err)
		}
		if got, want := contents(t, to), contents(t, src); !slices.Equal(got, want) {
			t.Errorf("%d lost: %d records, want %d", n, len(got), len(want))
		}
	}
}

// rotting damages what is read of objects below a prefix.
type rotting struct {
	store.Store
	prefix string
}

func (r rotting) Unwrap() store.Store { return r.Store }

func (r rotting) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	obj, err := r.Store.Get(ctx, key, o)
	if err != nil || !strings.HasPrefix(key, r.prefix) {
		return obj, err
	}
	b, err := io.ReadAll(obj.Body)
	if err != nil {
		return nil, err
	}
	if len(b) > 0 {
		b[len(b)-1] ^= 1
	}
	obj.Body = io.NopCloser(bytes.NewReader(b))
	return obj, nil
}

// TestFailedRestoreIsNoLog: what is restored cannot be read back, so no log is made of it. When the store is sound again, the
// same command goes on, and copies again what was damaged.
func TestFailedRestoreIsNoLog(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src).long('a')
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{layout.SegmentPrefix, layout.DataPrefix, layout.FilePrefix, layout.ManifestPrefix} {
		_, err := backup.Restore(t.Context(), to, rotting{back, prefix}, quick)
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "is no log. Run the same command again") || strings.Contains(err.Error(), "delete what is") {
			t.Errorf("%s: %v", prefix, err)
		}
		if _, err := manifest.ReadFormat(t.Context(), back, nil); !errors.Is(err, manifest.ErrRestoring) {
			t.Fatalf("%s: it became a log: %v", prefix, err)
		}
	}
	for key, body := range objects(t, back) {
		if k := layout.KindOf(key); k != layout.KindLock && k != layout.KindCompactorLock && k != layout.KindFormat {
			fixture.Put(t, back, key, damages["a bit at its end"](body))
		}
	}
	r, err := backup.Restore(t.Context(), to, back, quick)
	if err != nil || !r.Verified || r.Healed == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	whole(t, back, nil)
	if got, want := contents(t, back), contents(t, src); !slices.Equal(got, want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
}

// TestRestoreBesideAnUpdate: the backup is brought up to date while it is restored. Before the restore has copied what only the
// older version needs, and after that. If the copy cannot be whole, or nobody reads it, the restore says what to do, and makes no
// log.
func TestRestoreBesideAnUpdate(t *testing.T) {
	for name, c := range map[string]struct {
		before           string
		unread, restored bool
	}{
		"before the manifest is copied":      {before: layout.ManifestPrefix},
		"after it, and the copy is read":     {before: layout.LockPrefix, restored: true},
		"after it, and the copy is not read": {before: layout.LockPrefix, unread: true},
	} {
		src, to, back := newLog(t), named("backup"), named("back")
		l := begun(t, src)
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
		want, met := contents(t, src), false
		var once sync.Once
		update := func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Delete || op.Kind == faultstore.List || !strings.HasPrefix(op.Key, c.before) {
				return
			}
			once.Do(func() {
				met = true
				l.lead()
				l.compact()
				if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
					t.Error(err)
				}
			})
		}
		from, dest := faultstore.New(to, nil), faultstore.New(back, nil)
		from.SetBefore(update)
		dest.SetBefore(update)
		_, err := backup.Restore(t.Context(), from, dest, &backup.Options{Probe: quickProbe, NoVerify: c.unread})
		if c.restored {
			if !met || err != nil || !slices.Equal(contents(t, back), want) {
				t.Errorf("%s: %t, %v", name, met, err)
			}
			continue
		}
		if !met || err == nil || !strings.Contains(err.Error(), "was brought up to date meanwhile") || !strings.Contains(err.Error(), "restore to an empty place. What is in mem://back is no log, and can be deleted unless") {
			t.Errorf("%s: %t, %v", name, met, err)
		}
		if _, err := manifest.ReadFormat(t.Context(), back, nil); !errors.Is(err, manifest.ErrRestoring) {
			t.Errorf("%s: it became a log: %v", name, err)
		}
		again := named("again")
		if _, err := backup.Restore(t.Context(), to, again, quick); err != nil || !slices.Equal(contents(t, again), contents(t, src)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPinsOfTwoHosts: two machines back up to directories of the same name. The one that is complete leaves the other one's pin.
func TestPinsOfTwoHosts(t *testing.T) {
	src, one, two := newLog(t), named("backup"), named("backup")
	begun(t, src)
	chained(t, src, one)
	before := pins(t, src)
	if len(before) != 1 || !strings.HasPrefix(before[0], "backup to mem://backup ") {
		t.Fatalf("%q", before)
	}
	if _, err := backup.Make(t.Context(), src, two, nil); err != nil {
		t.Fatal(err)
	}
	if after := pins(t, src); !slices.Equal(after, before) {
		t.Errorf("left are the pins %q, want %q", after, before)
	}
	if _, err := backup.Make(t.Context(), src, one, nil); err != nil {
		t.Fatal(err)
	}
	if after := pins(t, src); len(after) > 0 {
		t.Errorf("left are the pins %q", after)
	}
}

// afterwards calls do after the note says that a backup is complete.
type afterwards struct {
	store.Store
	do  func()
	met bool
}

func (a *afterwards) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	info, err := a.Store.Put(ctx, key, body, o)
	if key == backup.NoteKey && !a.met && strings.Contains(strings.ReplaceAll(string(body), " ", ""), `"done":true`) {
		a.met = true
		a.do()
	}
	return info, err
}

// TestPinOfTheNext: a backup is complete, and before it removes its pin another call begins. That one keeps its own pin.
func TestPinOfTheNext(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	l.lead()
	l.compact()
	slow := &afterwards{Store: to, do: func() {
		l.lead()
		l.compact()
		chained(t, src, to)
	}}
	if _, err := backup.Make(t.Context(), src, slow, nil); err != nil || !slow.met {
		t.Fatalf("%t, %v", slow.met, err)
	}
	if p := pins(t, src); len(p) != 1 {
		t.Errorf("left are the pins %q, want that of the second call", p)
	}
}

// TestWithinOneAnother: a log and its backup do not lie within one another, in both directions.
func TestWithinOneAnother(t *testing.T) {
	src, done := named("log/a"), named("back/a")
	copyOf(t, newLog(t), src)
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, done, nil); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"log/a", "log/a/backup", "log"} {
		to := named(place)
		if _, err := backup.Make(t.Context(), src, to, nil); err == nil || !strings.Contains(err.Error(), "lies within the other") {
			t.Errorf("a backup to %s: %v", place, err)
		}
		if len(objects(t, to)) > 0 {
			t.Errorf("a backup to %s has written something", place)
		}
	}
	for _, place := range []string{"back/a", "back/a/log", "back"} {
		if _, err := backup.Restore(t.Context(), done, named(place), quick); err == nil || !strings.Contains(err.Error(), "lies within the other") {
			t.Errorf("a restore to %s: %v", place, err)
		}
	}
	// The same name on another server is another place.
	if _, err := backup.Make(t.Context(), src, elsewhere{named("log/a")}, nil); err != nil {
		t.Error(err)
	}
	if _, err := backup.Make(t.Context(), src, named("log/ab"), nil); err != nil {
		t.Error(err)
	}
}

// A place with so long a prefix that some later key would not fit is refused before anything is written.
func TestPlaceWithALongPrefix(t *testing.T) {
	long := func(in store.Store, bytes int) store.Store {
		st, err := store.Sub(in, strings.Repeat("a/", bytes)[:bytes-1]+"b")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	src, lake, done := named("log"), named("lake"), named("backup")
	apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, done, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	most := store.MaxKey - manifest.MaxKey - 1
	for name, run := range map[string]func(to, second store.Store) error{
		"backup": func(to, _ store.Store) error {
			_, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake})
			return err
		},
		"restore": func(to, second store.Store) error {
			_, err := backup.Restore(t.Context(), done, to, &backup.Options{Files: second, Probe: quickProbe})
			return err
		},
	} {
		in, files := named(name), named(name+" files")
		if err := run(long(in, most+1), files); err == nil || !strings.Contains(err.Error(), "shorter") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "restore" {
			if err := run(in, long(files, store.MaxKey-60)); err == nil || !strings.Contains(err.Error(), "shorter") {
				t.Errorf("the files of a %s: %v", name, err)
			}
		}
		if len(objects(t, in))+len(objects(t, files)) > 0 {
			t.Errorf("%s has written something", name)
		}
		if err := run(long(in, most), files); err != nil {
			t.Errorf("%s to the longest prefix: %v", name, err)
		}
	}
}

// elsewhere is a store on another server.
type elsewhere struct{ store.Store }

func (e elsewhere) Traits() store.Traits {
	t := e.Store.Traits()
	t.Endpoint = "http://elsewhere"
	return t
}

// repeating lists everything twice, as a listing does that began again.
type repeating struct{ store.Store }

func (r repeating) List(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for range 2 {
			for info, err := range r.Store.List(ctx, prefix, o) {
				if !yield(info, err) {
					return
				}
			}
		}
	}
}

// TestListingRepeats: what a listing shows twice is copied and counted once.
func TestListingRepeats(t *testing.T) {
	src, to, plain, back := newLog(t), named("backup"), named("plain"), named("back")
	begun(t, src)
	want, err := backup.Make(t.Context(), src, plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := backup.Make(t.Context(), repeating{src}, repeating{to}, nil)
	if err != nil || r.Objects != want.Objects || r.Bytes != want.Bytes || r.Present != 0 {
		t.Errorf("%+v, %v, want %+v", r, err, want)
	}
	if r, err = backup.Restore(t.Context(), repeating{to}, repeating{back}, quick); err != nil || r.Present != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestLongObjectOfAnotherHistory: the destination has a backup of another history of the log, also with objects that have the same
// names and sizes and are too long to be compared. They are not taken for damage, and not replaced.
func TestLongObjectOfAnotherHistory(t *testing.T) {
	src, other, to := newLog(t), newLog(t), named("backup")
	for _, st := range []store.Store{src, other} {
		begun(t, st).long('a')
	}
	if _, err := backup.Make(t.Context(), other, to, nil); err != nil {
		t.Fatal(err)
	}
	before, alike := objects(t, to), 0
	for key, body := range objects(t, src) {
		if layout.KindOf(key) == layout.KindData && len(body) > 9<<10 && len(body) == len(before[key]) && !bytes.Equal(body, before[key]) {
			alike++
		}
	}
	if _, err := backup.Make(t.Context(), src, to, nil); alike != 1 || err == nil || !strings.Contains(err.Error(), "has another history of this log") {
		t.Errorf("%d, %v", alike, err)
	}
	after := objects(t, to)
	for key, body := range before {
		if !bytes.Equal(body, after[key]) {
			t.Errorf("%s was replaced", key)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d objects, want %d", len(after), len(before))
	}
}

// halting stops in the middle of a file until it may go on.
type halting struct {
	store.Store
	goOn chan struct{}
}

func (h halting) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	obj, err := h.Store.Get(ctx, key, o)
	if err == nil && obj.Size > 4<<20 && (o == nil || o.Length == 0) {
		whole := obj.Body
		obj.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(whole, 3<<20), waiting(h.goOn), whole), whole}
	}
	return obj, err
}

type waiting chan struct{}

func (w waiting) Read([]byte) (int, error) { <-w; return 0, io.EOF }

// TestProgressWithinAnObject: people see how much of a large object is copied before it is whole.
func TestProgressWithinAnObject(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	l.epoch++
	w, err := writer.Open(t.Context(), src, fence.NewToken(l.epoch), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.CreateFile(t.Context(), ".parquet", 0)
	if err == nil {
		_, err = f.Write(make([]byte, 6<<20))
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
	}
	if err = errors.Join(err, w.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	goOn, last := make(chan struct{}), int64(0)
	var once sync.Once
	r, err := backup.Make(t.Context(), halting{src, goOn}, to, &backup.Options{Progress: func(stage string, done, total int64) {
		if stage != "copying" {
			return
		}
		if last = done; done >= 3<<20 && done < 6<<20 {
			once.Do(func() { close(goOn) })
		}
		if total > 0 && done > total+1<<20 {
			t.Errorf("%d of %d bytes", done, total)
		}
	}})
	if err != nil || last != r.Bytes {
		t.Errorf("the last progress was %d of %d bytes: %v", last, r.Bytes, err)
	}
}

// TestDamagedOriginal: an object of the log is damaged, and its copy in a complete backup is sound. The next call says so, and does
// not replace the copy, nor take it for another history: the backup can be restored as before.
func TestDamagedOriginal(t *testing.T) {
	src, to := newLog(t), named("backup")
	l := begun(t, src)
	l.long('a')
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	want, copies, met := contents(t, src), objects(t, to), 0
	for key, body := range objects(t, src) {
		kind := layout.KindOf(key)
		if copies[key] == nil || kind != layout.KindData && kind != layout.KindSegment && kind != layout.KindFile {
			continue
		}
		for name, damage := range damages {
			for _, unread := range []bool{false, true} {
				fixture.Put(t, src, key, damage(bytes.Clone(body)))
				_, err := backup.Make(t.Context(), src, to, &backup.Options{NoVerify: unread})
				if err != nil && (!errors.Is(err, fence.ErrCorrupt) || strings.Contains(err.Error(), "another history")) {
					t.Errorf("%s, %s: %v", key, name, err)
				}
				if kind == layout.KindData && len(body) > 8<<10 && name == "half is lost" {
					met++
					if err == nil || !strings.Contains(err.Error(), key+" in mem://") || !strings.Contains(err.Error(), "is damaged, and was not copied from there") || !strings.Contains(err.Error(), "Run `fencepost verify` on ") {
						t.Errorf("%s, %s: %v", key, name, err)
					}
				}
				for key, body := range objects(t, to) {
					if copies[key] != nil && key != backup.NoteKey && layout.KindOf(key) != layout.KindLock && !bytes.Equal(body, copies[key]) {
						t.Fatalf("%s, %s: %s was replaced", key, name, key)
					}
				}
			}
		}
		fixture.Put(t, src, key, body)
	}
	back := named("back")
	if _, err := backup.Restore(t.Context(), to, back, quick); err != nil || met != 2 || !slices.Equal(contents(t, back), want) {
		t.Errorf("met %d: %v", met, err)
	}
}

// TestBothAreCut: a copy is cut, and so is its original. The one does not replace the other, also if nobody reads the copy.
func TestBothAreCut(t *testing.T) {
	for _, kind := range []string{layout.KindData, layout.KindSegment, layout.KindFile} {
		src, to := newLog(t), named("backup")
		begun(t, src).long('a')
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
		for key, body := range objects(t, src) {
			if layout.KindOf(key) != kind || objects(t, to)[key] == nil {
				continue
			}
			fixture.Put(t, src, key, body[:len(body)/2])
			fixture.Put(t, to, key, body[:len(body)/2+1])
			_, err := backup.Make(t.Context(), src, to, &backup.Options{NoVerify: true})
			if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key+" in mem://") || len(objects(t, to)[key]) != len(body)/2+1 {
				t.Errorf("%s: %v", key, err)
			}
			fixture.Put(t, src, key, body)
			fixture.Put(t, to, key, body)
		}
	}
}
