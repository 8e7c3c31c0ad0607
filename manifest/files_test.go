package manifest

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

func initWith(ctx context.Context, st, second store.Store) (Format, error) {
	return Init(ctx, st, &InitOptions{Probe: quickProbe, Settle: quick, Files: second})
}

// TestGoldenFiles: the format of a log that has its files in a second store.
func TestGoldenFiles(t *testing.T) {
	f := testFormat()
	f.Requires, f.Files = []string{"files"}, &Files{Store: "s3://lake/table"}
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := fixture.Golden(t, "format-files.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	if got, err := decodeFormat(want); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	key := layout.FileKey(3, "00000000-0000-7000-8000-000000000001", ".parquet")
	if name := f.FileName(key); name != "101112131415161718191a1b1c1d1e1f/00000000000000000003/00000000-0000-7000-8000-000000000001.parquet" {
		t.Error(name)
	}
	if own := testFormat(); own.FileName(key) != key {
		t.Error(own.FileName(key))
	}
	for old, says := range map[string]string{
		`"requires": [` + "\n" + `  "files"` + "\n ]": `requires that programs know [], and its members need ["files"]`,
		`"files": {"store":"s3://lake/table"}`:        `its members need []`,
	} {
		bad := bytes.Replace(want, []byte(old), []byte(`"x": 1`), 1)
		if bytes.Equal(bad, want) {
			t.Fatalf("%s is not there", old)
		}
		_, err := decodeFormat(document.Sum(layout.FormatKey, bad))
		fixture.WantErr(t, err, fence.ErrCorrupt, says)
	}
	more := document.Sum(layout.FormatKey, bytes.Replace(want, []byte(`"files"`), []byte(`"files","feats"`), 1))
	_, err = decodeFormat(more)
	fixture.WantErr(t, err, fence.ErrFormat, `["feats"]`)
}

// TestInitFiles: both stores are probed, the second one is marked, and whoever opens the log
// brings it.
func TestInitFiles(t *testing.T) {
	st, second := memstore.New(nil), memstore.New(&memstore.Options{Name: "mem://lake"})
	f, err := initWith(t.Context(), st, second)
	if err != nil {
		t.Fatal(err)
	}
	if f.Files == nil || f.Files.Store != "mem://lake" || f.Files.Probe == nil || f.Probe == nil || !slices.Contains(f.Requires, "files") {
		t.Errorf("%+v", f)
	}
	if err := files.Check(t.Context(), second, f.Log, st.Traits().Name, nil); err != nil {
		t.Error(err)
	}
	if n, _ := second.Len(); n != 1 {
		t.Errorf("%d objects in the store for files", n)
	}
	if again, err := initWith(t.Context(), st, second); err != nil || !reflect.DeepEqual(again, f) {
		t.Errorf("%+v, %v", again, err)
	}
	_, err = quickInit(t.Context(), st)
	fixture.WantErr(t, err, ErrFiles, "keeps its files in another store, mem://lake; open that one and give it as the option Files (on the command line: --files URL)")

	own := memstore.New(nil)
	if _, err := quickInit(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	_, err = initWith(t.Context(), own, second)
	fixture.WantErr(t, err, ErrFiles, "leave out the option Files")

	other, err := initWith(t.Context(), memstore.New(nil), second)
	if err != nil || other.Log == f.Log {
		t.Error(other, err)
	}
	if n, _ := second.Len(); n != 2 {
		t.Errorf("%d objects in a store for files of two logs", n)
	}
}

// TestT10_InitRefusesTheStoreForFiles, and makes no log.
func TestT10_InitRefusesTheStoreForFiles(t *testing.T) {
	st, second := memstore.New(nil), memstore.New(&memstore.Options{Name: "mem://lake"})
	_, err := initWith(t.Context(), st, careless{second})
	fixture.WantErr(t, err, probe.ErrRefused, "the store for files, mem://lake")
	for _, st := range []*memstore.Store{st, second} {
		if n, _ := st.Len(); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	}
}

// TestInitFilesApart: neither store may lie below the other.
func TestInitFilesApart(t *testing.T) {
	root, err := dirstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func(prefix string) store.Store {
		st, err := store.Sub(root, prefix)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	for _, c := range [][2]string{{"table", "table"}, {"table/log", "table"}, {"table", "table/files"}} {
		_, err := initWith(t.Context(), at(c[0]), at(c[1]))
		fixture.WantErr(t, err, ErrOptions, "lie one within the other")
	}
	if _, err := initWith(t.Context(), at("table-log"), at("table")); err != nil {
		t.Error(err)
	}
}

// named is a store in memory that calls itself as another does.
type named struct {
	store.Store
	name string
}

func (n named) Traits() store.Traits { return store.Traits{Name: n.name, MultiProcess: true} }

// TestPlacesApart: places are compared by their names, part by part, when a log is created and when it is
// opened. The error names both.
//
// guard:files-apart. Without this check: files are at s3://lake/table, and their log at
// s3://lake/table/log; an engine vacuums the table, and deletes all objects there that the table does
// not name; one of them is the seal of an epoch; a zombie of this epoch creates its next object in the
// slot of the seal, and acknowledges records that no reader sees.
func TestPlacesApart(t *testing.T) {
	memory := func(name string) store.Store { return memstore.New(&memstore.Options{Name: name}) }
	like := func(name string) store.Store { return named{memstore.New(nil), name} }
	for _, c := range []struct {
		at         func(string) store.Store
		log, files string
		apart      bool
	}{
		{memory, "mem://lake/logs/a", "mem://lake", false},
		{memory, "mem://lake", "mem://lake", false},
		{memory, "mem://lake", "mem://lake/table", false},
		{memory, "mem://lake-logs/a", "mem://lake", true},
		{memory, "mem://", "mem://lake", true},
		{memory, "mem://", "mem://", true},
		{like, "s3://bucket/lake/logs/a", "s3://bucket/lake", false},
		{like, "s3://bucket/lake", "s3://bucket", false},
		{like, "s3://bucket/lake/", "s3://bucket/lake", false},
		{like, "s3://bucket/lake-logs", "s3://bucket/lake", true},
		{like, "s3://bucket/logs/lake", "s3://bucket/lake", true},
		{like, "file:///data/lake/logs", "file:///data/lake", false},
		{like, "file:///data/logs", "file:///data/lake", true},
	} {
		st, second := c.at(c.log), c.at(c.files)
		says := "the store for files, " + c.files + ", and that of the log, " + c.log + ","
		_, err := initWith(t.Context(), st, second)
		if c.apart {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		fixture.WantErr(t, err, ErrOptions, says)
		if _, err := ReadFormat(t.Context(), st, nil); !errors.Is(err, ErrNotInitialized) {
			t.Errorf("%s: a log is there, or %v", c.log, err)
		}
		// A log that is there all the same, such as one that was moved, is not opened.
		f := testFormat()
		f.Requires, f.Files = []string{"files"}, &Files{Store: c.files}
		body, err := f.encode()
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, st, layout.FormatKey, body)
		_, err = initWith(t.Context(), st, second)
		fixture.WantErr(t, err, ErrFiles, says)
	}
}

// TestInitFilesStops: a process dies between any two requests. The next one makes the log, or
// finds one that can be used.
//
// guard:files-mark-first. A log may have a second store for its files, which needs a mark with the
// log's id. Without this order: a process creates format.json, and dies before it writes the mark; the
// log is there, and Init does nothing for a log that is there; no writer of the log may create a file,
// because its store for files has no mark.
func TestInitFilesStops(t *testing.T) {
	died := errors.New("died")
	for n := 1; ; n++ {
		st, second := memstore.New(nil), memstore.New(nil)
		ctx, die := context.WithCancelCause(t.Context())
		var count atomic.Int64 // the probe makes several at once
		before := func(context.Context, faultstore.Op) {
			if count.Add(1) == int64(n) {
				die(died)
			}
		}
		a, b := faultstore.New(st, nil), faultstore.New(second, nil)
		a.SetBefore(before)
		b.SetBefore(before)
		_, err := Init(ctx, a, &InitOptions{Probed: fixture.Probed(time.Now()), Probe: quickProbe, Settle: quick, Files: b})
		f, rerr := ReadFormat(t.Context(), st, nil)
		if rerr == nil {
			if err := files.Check(t.Context(), second, f.Log, "", nil); err != nil {
				t.Fatalf("request %d: there is a log, and %v", n, err)
			}
		}
		if _, err := initWith(t.Context(), st, second); err != nil {
			t.Fatalf("request %d: afterwards: %v", n, err)
		}
		if err == nil {
			break
		}
	}
}

// TestInitFilesRace: of two logs that are made at once one is there, and only its mark.
func TestInitFilesRace(t *testing.T) {
	st, inner := fixture.Faults(nil)
	second := memstore.New(nil)
	var want Format
	met := st.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Put && op.Key == layout.FormatKey
	}, func(ctx context.Context) {
		var err error
		if want, err = initWith(ctx, inner, second); err != nil {
			t.Error(err)
		}
	})
	made := 0
	o := &InitOptions{Probe: quickProbe, Settle: quick, Files: second, Made: func() { made++ }}
	got, err := Init(t.Context(), st, o)
	if err != nil || made > 0 || !met() || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v", got, made, err)
	}
	for info, err := range second.List(t.Context(), "", nil) {
		if err != nil || !strings.Contains(info.Key, got.Log.String()) {
			t.Error(info.Key, err)
		}
	}
	if _, err := Init(t.Context(), inner, o); err != nil || made > 0 {
		t.Error("of a log that exists:", made, err)
	}
	if _, err := Init(t.Context(), memstore.New(nil), o); err != nil || made != 1 {
		t.Error("a new log:", made, err)
	}
}
