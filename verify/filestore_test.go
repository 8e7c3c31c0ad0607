package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// apart is a log whose files are in a second store.
type apart struct {
	*logtest.Log
	second store.Store
}

// newApart makes a log with a name of its own, since a compactor looks at it.
func newApart(t testing.TB, name string, second store.Store) *apart {
	t.Helper()
	l := logtest.On(t, logtest.Format(), &memstore.Options{Clock: clock.Go(), Name: "mem://" + name})
	f, err := manifest.Init(t.Context(), l.Mem, &manifest.InitOptions{
		Grace: -1, Files: second, Settle: logtest.Quick, Probed: fixture.Probed(time.Now()), Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Format, l.State = f, state.With(l.Mem, f, &state.Options{Files: second, Settle: logtest.Quick, Clock: clock.Go()})
	return &apart{l, second}
}

func (a *apart) open() *writer.Writer {
	return a.Open(&writer.Options{Settle: logtest.Quick, Clock: clock.Go(), Files: a.second})
}

func (a *apart) compact() compactor.Report {
	a.Helper()
	report, err := compactorOf(a.Log, compactor.Options{Files: a.second}).Once(context.Background())
	if err != nil {
		a.Fatal(err)
	}
	return report
}

func (a *apart) verify() *verify.Report {
	a.Helper()
	r, err := verify.Run(context.Background(), a.Mem, &verify.Options{Files: a.second, Settle: logtest.Quick})
	if err != nil {
		a.Fatal(err)
	}
	return r
}

// file uploads a file.
func (a *apart) file(w *writer.Writer) (manifest.File, error) {
	f, err := w.CreateFile(context.Background(), ".parquet", 0)
	if err != nil {
		return manifest.File{}, err
	}
	_, werr := f.Write([]byte("rows of " + f.Key()))
	err = errors.Join(werr, f.Close())
	return f.File(), err
}

// files uploads some.
func (a *apart) files(w *writer.Writer, n int) (all []manifest.File) {
	a.Helper()
	for range n {
		f, err := a.file(w)
		if err != nil {
			a.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// has reports whether a file is in the second store.
func (a *apart) has(key string) bool {
	a.Helper()
	_, _, err := store.Read(context.Background(), a.second, a.Format.FileName(key), &store.ReadOptions{Length: 1})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		a.Fatal(err)
	}
	return err == nil
}

// TestFilesApart: two logs share a store for their files. Each commits, removes, and deletes
// what it no longer needs, and none touches the other's.
func TestFilesApart(t *testing.T) {
	second := memstore.New(&memstore.Options{Name: "mem://lake"})
	a, b := newApart(t, "a", second), newApart(t, "b", second)
	var kept, orphans, removed []manifest.File
	for _, l := range []*apart{a, b} {
		w := l.open()
		f := l.files(w, 4)
		if err := w.CommitFiles(t.Context(), manifest.Edit{Add: f[:3]}); err != nil {
			t.Fatal(err)
		}
		if err := w.CommitFiles(t.Context(), manifest.Edit{Remove: []string{f[0].Key}}); err != nil {
			t.Fatal(err)
		}
		l.Append(w, "record")
		l.Close(w)
		removed, kept, orphans = append(removed, f[0]), append(kept, f[1:3]...), append(orphans, f[3])
		for _, key := range l.Keys("") {
			if layout.KindOf(key) == layout.KindFile {
				t.Errorf("%s is in the log's own store", key)
			}
		}
	}
	// A later epoch ends that of the orphans. Only A compacts.
	a.lead(t)
	b.lead(t)
	for range 3 {
		a.compact()
	}
	for i, l := range []*apart{a, b} {
		if l.has(removed[i].Key) != (l == b) || l.has(orphans[i].Key) != (l == b) || !l.has(kept[2*i].Key) || !l.has(kept[2*i+1].Key) {
			t.Errorf("log %d: removed %t, orphan %t, live %t %t", i, l.has(removed[i].Key), l.has(orphans[i].Key), l.has(kept[2*i].Key), l.has(kept[2*i+1].Key))
		}
		r := l.verify()
		if !r.OK() || r.Files != 2 || r.Objects[layout.KindFile].Objects < 2 {
			t.Errorf("log %d: %d files, %v", i, r.Files, r.Problems)
		}
	}
}

// lead is a leadership with the second store.
func (a *apart) lead(t testing.TB) {
	t.Helper()
	w := a.open()
	a.Append(w, "another epoch")
	a.Close(w)
}

// TestFilesApartPinned: a pin in the log's store holds a file in the second one.
func TestFilesApartPinned(t *testing.T) {
	a := newApart(t, "a", memstore.New(&memstore.Options{Name: "mem://lake"}))
	w := a.open()
	f := a.files(w, 2)
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: f}); err != nil {
		t.Fatal(err)
	}
	a.compact()
	r, err := reader.Open(t.Context(), a.Mem, &reader.Options{Files: a.second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pin(t.Context(), "engine", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.CommitFiles(t.Context(), manifest.Edit{Remove: []string{f[0].Key}}); err != nil {
		t.Fatal(err)
	}
	a.Close(w)
	for range 3 {
		a.compact()
	}
	if !a.has(f[0].Key) {
		t.Error("a pinned file is gone")
	}
	if err := r.Unpin(t.Context(), "engine"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		a.compact()
	}
	if a.has(f[0].Key) || !a.has(f[1].Key) {
		t.Error("a file that nobody needs stays, or a live one is gone")
	}
}

// TestFilesApartWrong: nobody uses a log with the wrong store for its files, or without one.
func TestFilesApartWrong(t *testing.T) {
	second := memstore.New(&memstore.Options{Name: "mem://lake"})
	a := newApart(t, "a", second)
	wrong := memstore.New(&memstore.Options{Name: "mem://pond"})
	ctx := t.Context()

	w := a.Open(&writer.Options{Files: wrong, Settle: logtest.Quick})
	_, err := a.file(w)
	fixture.WantErr(t, err, manifest.ErrFiles, "mem://pond has no _fencepost/")
	a.Append(w, "records need no files")
	a.Close(w)
	_, err = writer.Open(ctx, a.Mem, fence.NewToken(7), nil)
	fixture.WantErr(t, err, manifest.ErrFiles, "mem://lake; open that one and give it as the option Files")

	for _, c := range map[string]struct {
		second store.Store
		says   string
	}{"none": {nil, "mem://lake; open that one"}, "wrong": {wrong, "mem://pond has no _fencepost/"}} {
		comp := compactorOf(a.Log, compactor.Options{Files: c.second})
		_, err := comp.Once(ctx)
		fixture.WantErr(t, err, manifest.ErrFiles, c.says)
		_, err = comp.Plan(ctx)
		fixture.WantErr(t, err, manifest.ErrFiles, c.says)
		fixture.WantErr(t, comp.Run(ctx), manifest.ErrFiles, c.says) // it does not wait for ever
	}
	if m := a.Newest(); len(m.Segments) > 0 {
		t.Error("it was compacted")
	}
	_, err = verify.Run(ctx, a.Mem, nil)
	fixture.WantErr(t, err, manifest.ErrFiles, "mem://lake; open that one")
	if _, err := reader.Open(ctx, a.Mem, nil); err != nil {
		t.Error("records can be read without the files:", err)
	}

	own := newLog(t)
	_, err = reader.Open(ctx, own.Mem, &reader.Options{Files: second})
	fixture.WantErr(t, err, manifest.ErrFiles, "leave out the option Files")
	_, err = verify.Run(ctx, own.Mem, &verify.Options{Files: second})
	fixture.WantErr(t, err, manifest.ErrFiles, "leave out the option Files")
	_, err = compactorOf(own, compactor.Options{Files: second}).Once(ctx)
	fixture.WantErr(t, err, manifest.ErrFiles, "leave out the option Files")
}

// TestFilesApartCopied: the compactor of a copied log deletes nothing of the original's.
func TestFilesApartCopied(t *testing.T) {
	a := newApart(t, "a", memstore.New(&memstore.Options{Name: "mem://lake"}))
	c := &apart{a.Fork(t, &memstore.Options{Clock: clock.Go(), Name: "mem://copy"}), a.second}
	a.lead(t)
	w := a.open()
	f := a.files(w, 1)
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: f}); err != nil {
		t.Fatal(err)
	}
	a.Close(w)
	for range 3 {
		c.lead(t)
	}
	_, err := compactorOf(c.Log, compactor.Options{Files: c.second}).Once(t.Context())
	fixture.WantErr(t, err, manifest.ErrFiles, "belong to the log in mem://a, and this is mem://copy")
	if !a.has(f[0].Key) {
		t.Error("the original has lost a file")
	}
	r, err := verify.Run(t.Context(), c.Mem, &verify.Options{Files: c.second})
	if err != nil || r.OK() || !strings.Contains(r.Problems[0].What, "belong to the log in mem://a") {
		t.Errorf("%v, %v", r.Problems, err)
	}
	if r, err := verify.Run(t.Context(), c.Mem, &verify.Options{Files: c.second, Copy: true}); err != nil || !r.OK() {
		t.Errorf("%v, %v", r.Problems, err)
	}
	// The log was moved there, and says so.
	if _, err := manifest.Init(t.Context(), c.Mem, &manifest.InitOptions{Files: c.second, FilesMoved: true}); err != nil {
		t.Fatal(err)
	}
	c.compact()
}

// TestFilesApartDamage: verify reads the files where they are.
func TestFilesApartDamage(t *testing.T) {
	second := memstore.New(&memstore.Options{Name: "mem://lake"})
	a := newApart(t, "a", second)
	w := a.open()
	f := a.files(w, 2)
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: f}); err != nil {
		t.Fatal(err)
	}
	a.Close(w)
	if r := a.verify(); !r.OK() || r.Files != 2 {
		t.Fatalf("%d files, %v", r.Files, r.Problems)
	}
	fixture.Put(t, second, a.Format.FileName(f[0].Key), []byte("other rows"))
	if err := second.Delete(t.Context(), a.Format.FileName(f[1].Key), "_fencepost/"+layout.MarkKey(a.Format.Log)); err != nil {
		t.Fatal(err)
	}
	r := a.verify()
	if len(r.Problems) != 3 {
		t.Fatalf("%v", r.Problems)
	}
	all := fixture.JSON(t, r.Problems)
	for _, says := range []string{f[0].Key, f[1].Key, "10 bytes, the table says", "missing", "no writer creates files", "--files-moved"} {
		if !strings.Contains(all, says) {
			t.Errorf("%s: nothing says %q", all, says)
		}
	}
}

// TestFilesApartDown: while the second store is down the log goes on, and files fail one by one.
func TestFilesApartDown(t *testing.T) {
	inner := memstore.New(&memstore.Options{Name: "mem://lake"})
	second := faultstore.New(inner, nil)
	a := newApart(t, "a", second)
	second.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	w := a.open()
	a.Append(w, "one")
	if _, err := a.file(w); !errors.Is(err, store.ErrDenied) {
		t.Error(err)
	}
	second.SetHook(nil)
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: a.files(w, 1)}); err != nil {
		t.Error(err)
	}
	a.Append(w, "two")
	a.Close(w)
	if r := a.verify(); !r.OK() || r.Files != 1 || r.End != 2 {
		t.Errorf("%d files, %d records, %v", r.Files, r.End, r.Problems)
	}
}

// TestFilesApartTmp: what a probe has left in the shared store is deleted a day later, by the
// compactor of any log. Another log's mark and what is not ours stay.
func TestFilesApartTmp(t *testing.T) {
	manual := &daily{Clock: clock.Go()}
	second := memstore.New(&memstore.Options{Name: "mem://lake", Clock: manual})
	a := newApart(t, "a", second)
	left, strange := "_fencepost/tmp/"+uuid.NewString(), "_fencepost/tmp/notes"
	fixture.Put(t, second, left, []byte("probe"))
	fixture.Put(t, second, strange, []byte("somebody's"))
	a.lead(t)
	there := func(key string) bool {
		_, err := second.Get(t.Context(), key, nil)
		return err == nil
	}
	if a.compact(); !there(left) {
		t.Error("it was deleted at once")
	}
	manual.days = 2
	if a.compact(); there(left) || !there(strange) {
		t.Errorf("left %t, strange %t", there(left), there(strange))
	}
}

// daily is a clock that can be some days ahead.
type daily struct {
	clock.Clock
	days int
}

func (d *daily) Wall() time.Time { return d.Clock.Wall().Add(time.Duration(d.days) * 24 * time.Hour) }
