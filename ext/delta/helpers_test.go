package delta_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// order is a row of these tests.
type order struct {
	ID   int64   `parquet:"id"`
	Name string  `parquet:"name"`
	Sum  float64 `parquet:"sum"`
}

// lake is a log in memory, with a leader and a Delta table beside its files.
type lake struct {
	*logtest.Log
	root store.Store
	w    *writer.Writer
	next int64
	anew bool // the log is another one, which needs a new publisher
}

// newLake is for a bubble of testing/synctest.
func newLake(t testing.TB, l *logtest.Log) *lake {
	t.Helper()
	root, _, err := delta.Beside(l.Mem)
	if err != nil {
		t.Fatal(err)
	}
	k := &lake{Log: l, root: root}
	k.w = l.Open(nil)
	return k
}

// inLake gives a lake in virtual time.
func inLake(t *testing.T, f func(t *testing.T, k *lake)) {
	t.Helper()
	logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
		k := newLake(t, l)
		defer func() { l.Close(k.w) }()
		f(t, k)
	})
}

// publisher opens one on a store like the log's.
func (k *lake) publisher(st store.Store, opts *delta.Options) *delta.Publisher {
	k.Helper()
	if st == nil {
		st = k.Mem
	}
	root, src, err := delta.Beside(st)
	if err != nil {
		k.Fatal(err)
	}
	if opts == nil {
		opts = &delta.Options{}
	}
	if opts.Settle == nil {
		opts.Settle = logtest.Quick
	}
	opts.Clock = clock.Go()
	p, err := delta.Open(context.Background(), root, []delta.Source{src}, opts)
	if err != nil {
		k.Fatal(err)
	}
	return p
}

// publish publishes, and fails on any error.
func (k *lake) publish(p *delta.Publisher) delta.Report {
	k.Helper()
	r, err := p.Publish(context.Background())
	if err = errors.Join(err, r.Err()); err != nil {
		k.Fatal(err)
	}
	return r
}

// rows commits one file with some rows.
func (k *lake) rows(n int, remove ...string) string {
	k.Helper()
	key, err := k.tryRows(n, remove...)
	if err != nil {
		k.Fatal(err)
	}
	return key
}

func (k *lake) tryRows(n int, remove ...string) (string, error) {
	var rows []order
	for range n {
		k.next++
		rows = append(rows, order{ID: k.next, Name: fmt.Sprint("order ", k.next), Sum: float64(k.next) / 2})
	}
	f, err := fileOf(k.w, rows)
	if err != nil {
		return "", err
	}
	return f.Key, k.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}, Remove: remove})
}

// raw commits a file with other bytes.
func (k *lake) raw(body []byte, meta map[string]string, remove ...string) string {
	k.Helper()
	w, err := k.w.CreateFile(context.Background(), ".parquet", 0)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		k.Fatal(err)
	}
	f := w.File()
	f.Meta = meta
	if err := k.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}, Remove: remove}); err != nil {
		k.Fatal(err)
	}
	return f.Key
}

// compact folds, merges and prunes.
func (k *lake) compact() {
	k.Helper()
	k.Token++
	c, err := compactor.New(k.Mem, &compactor.Options{Token: fence.NewToken(k.Token), Settle: logtest.Quick, Clock: clock.Go()})
	if err == nil {
		_, err = c.Once(context.Background())
	}
	if err != nil {
		k.Fatal(err)
	}
}

// live returns the live files of the log, by their paths in the table.
func (k *lake) live() []string {
	k.Helper()
	r, err := reader.Open(context.Background(), k.Mem, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		k.Fatal(err)
	}
	s, err := r.Snapshot(context.Background(), &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		k.Fatal(err)
	}
	var all []string
	for f, err := range s.Files(context.Background()) {
		if err != nil {
			k.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(f.Key, "file/"))
	}
	slices.Sort(all)
	return all
}

// pins returns the versions that are pinned.
func (k *lake) pins() (versions []uint64) {
	k.Helper()
	pins, err := k.State.Pins(context.Background())
	if err != nil {
		k.Fatal(err)
	}
	for _, p := range pins {
		versions = append(versions, p.Version)
	}
	return versions
}

// engine reads a Delta table as an engine does, from JSON commits only.
type engine struct {
	files  map[string]map[string]any
	schema string
	infos  []map[string]any
}

// version reads a version of the table by its commits, from the first one on.
func (k *lake) version(v int64) *engine {
	k.Helper()
	e := &engine{files: map[string]map[string]any{}}
	for n := range v + 1 {
		body := k.Body(fmt.Sprintf("file/_delta_log/%020d.json", n))
		for line := range strings.Lines(string(body)) {
			var a map[string]map[string]any
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				k.Fatal(err)
			}
			switch {
			case a["add"] != nil:
				e.files[a["add"]["path"].(string)] = a["add"]
			case a["remove"] != nil:
				delete(e.files, a["remove"]["path"].(string))
			case a["metaData"] != nil:
				e.schema = a["metaData"]["schemaString"].(string)
			case a["commitInfo"] != nil:
				e.infos = append(e.infos, a["commitInfo"])
			}
		}
	}
	return e
}

func (e *engine) paths() []string { return slices.Sorted(maps.Keys(e.files)) }

// fileOf writes rows to a new file of the log.
func fileOf[T any](w *writer.Writer, rows []T) (manifest.File, error) {
	d, err := delta.NewWriter(context.Background(), w, &delta.WriterOptions[T]{Compression: delta.Plain}) // the others have goroutines outside of bubbles
	if err != nil {
		return manifest.File{}, err
	}
	defer d.Close()
	if err := d.Write(context.Background(), rows); err != nil {
		return manifest.File{}, err
	}
	files, err := d.Finish(context.Background())
	if err != nil {
		return manifest.File{}, err
	}
	return files[0], nil
}
