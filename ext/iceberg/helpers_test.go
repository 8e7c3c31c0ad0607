package iceberg_test

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
	"github.com/fencepost/fencepost/ext/iceberg"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// location is where the tables of tests say that they are.
const location = "mem://bucket/file"

// order is a row of these tests.
type order struct {
	ID   int64  `parquet:"id"`
	Name string `parquet:"name"`
}

// lake is a log in memory, with a leader and tables beside its files.
type lake struct {
	*logtest.Log
	w    *writer.Writer
	next int64
}

// inLake gives a lake in virtual time.
func inLake(t *testing.T, f func(t *testing.T, k *lake)) {
	t.Helper()
	logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
		k := &lake{Log: l}
		k.w = l.Open(nil)
		defer func() { l.Close(k.w) }()
		f(t, k)
	})
}

func both() []delta.Format { return []delta.Format{delta.Lake(), iceberg.Format(location)} }

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
	if opts.Formats == nil {
		opts.Formats = both()
	}
	opts.Settle, opts.Clock = logtest.Quick, clock.Go()
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
	var rows []order
	for range n {
		k.next++
		rows = append(rows, order{k.next, fmt.Sprint("order ", k.next)})
	}
	return commit(k, rows, nil, remove...)
}

// commit commits a file with rows, in a partition.
func commit[T any](k *lake, rows []T, values map[string]string, remove ...string) string {
	k.Helper()
	f, err := fileOf(k.w, rows)
	if err == nil {
		f.Meta = values
		err = k.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}, Remove: remove})
	}
	if err != nil {
		k.Fatal(err)
	}
	return f.Key
}

func (k *lake) remove(keys ...string) {
	k.Helper()
	if err := k.w.CommitFiles(context.Background(), manifest.Edit{Remove: keys}); err != nil {
		k.Fatal(err)
	}
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

// keys are the objects below the table's folder for metadata, by their names there.
func (k *lake) keys() (all []string) {
	k.Helper()
	for info, err := range k.Mem.List(context.Background(), "file/metadata/", nil) {
		if err != nil {
			k.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(info.Key, "file/metadata/"))
	}
	slices.Sort(all)
	return all
}

// deltaAt returns the active files of each Delta version by the edits that are published in it.
func (k *lake) deltaAt() map[uint64][]string {
	k.Helper()
	all, active, edits := map[uint64][]string{}, map[string]bool{}, uint64(0)
	for v := 0; ; v++ {
		body, _, err := store.Read(context.Background(), k.Mem, fmt.Sprintf("file/_delta_log/%020d.json", v), &store.ReadOptions{Limit: 1 << 20})
		if errors.Is(err, store.ErrNotFound) {
			return all
		}
		if err != nil {
			k.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			var a map[string]map[string]any
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				k.Fatal(err)
			}
			switch {
			case a["add"] != nil:
				active[a["add"]["path"].(string)] = true
			case a["remove"] != nil:
				delete(active, a["remove"]["path"].(string))
			case a["txn"] != nil:
				edits = uint64(a["txn"]["version"].(float64))
			}
		}
		all[edits] = slices.Sorted(maps.Keys(active))
	}
}
