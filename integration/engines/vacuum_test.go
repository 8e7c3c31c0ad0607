//go:build integration && unix

package engines

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost/store"
)

const (
	commitZero = "file/_delta_log/00000000000000000000.json"
	stray      = "file/0/stray.parquet" // as a writer leaves it that is killed before its commit
)

// vacuums lets each engine that can vacuum do so at the root of a copy whose protocol names no
// feature, as a program would that ignores them: with a retention of a week, and with none.
func (w *world) vacuums(p *place) {
	w.Helper()
	for _, e := range w.engines {
		if e.name != "delta-rs" && e.name != "spark" {
			continue // Polars and DuckDB have no vacuum
		}
		w.vacuum(p, e, 0)
		if p.dir != "" { // in a bucket nothing can be made a week old
			w.vacuum(p, e, 7*24)
		}
	}
}

func (w *world) vacuum(p *place, e *engine, hours int) {
	w.Helper()
	ctx := w.Context()
	folder := fmt.Sprintf("%s-%d", e.name, hours)
	st, root := p.open(w.T, folder)
	original, err := w.copyTo(st)
	w.fatal(err)
	if p.dir != "" {
		old := time.Now().Add(-8 * 24 * time.Hour)
		w.fatal(os.Chtimes(filepath.Join(p.dir, folder, filepath.FromSlash(stray)), old, old))
	}
	before, err := contents(ctx, st)
	w.fatal(err)
	time.Sleep(2 * time.Second) // the listings of some stores have whole seconds
	w.fatal(e.ask(map[string]any{"do": "vacuum", "table": p.table(folder), "hours": hours}, new(any)))
	after, err := contents(ctx, st)
	w.fatal(err)

	published := w.h.ever()
	if hours == 0 {
		published = w.h.current()
	}
	kept := map[string]bool{}
	for _, f := range published {
		kept["file/"+f] = true
	}
	gone := 0
	for key, sum := range before {
		now, ok := after[key]
		if !ok {
			gone++
		}
		if (!ok || now != sum) && (kept[key] || !strings.HasPrefix(key, "file/") || strings.HasPrefix(key, "file/_")) {
			w.Errorf("the vacuum of %s with a retention of %d hours has deleted or changed %s", e.name, hours, key)
		}
	}
	if _, ok := after[stray]; ok {
		w.Errorf("the vacuum of %s with a retention of %d hours has left %s: it did nothing", e.name, hours, stray)
	}
	w.Logf("%s vacuums without features and with a retention of %d hours: %d of %d objects are gone, none of them of the log or of %d published files", e.version, hours, gone, len(before), len(published))

	// The table is whole: with its own log again, it can be read.
	h := newHistory(root)
	for key := range after {
		if _, ok := original[key]; !ok && strings.HasPrefix(key, "file/_delta_log/") {
			w.fatal(st.Delete(ctx, key)) // what the vacuum has said of itself
		}
	}
	w.fatal(st.Delete(ctx, commitZero))
	_, err = store.Create(ctx, st, commitZero, original[commitZero], nil)
	w.fatal(err)
	newest, err := h.newest(ctx)
	w.fatal(err)
	versions := []int{newest}
	if hours > 0 {
		versions = append(versions, 0, newest/2)
	}
	for _, v := range versions {
		got, err := e.read(p.table(folder), v)
		w.fatal(err)
		if want := h.at(v).content(); got.String() != want.String() {
			w.Errorf("after the vacuum %s reads %v in version %d, want %v", e.name, got, v, want)
		}
	}
}

// copyTo copies the log and its table, without checkpoints and without the feature in the protocol,
// and adds a stray file. It returns what was copied, as it was.
func (w *world) copyTo(st store.Store) (map[string][]byte, error) {
	ctx := w.Context()
	original := map[string][]byte{}
	put := func(key string, body []byte) error {
		_, err := store.Create(ctx, st, key, body, nil)
		return err
	}
	for info, err := range store.ListAll(ctx, w.st, "", nil, nil) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(info.Key, "file/_") && strings.Contains(info.Key, "checkpoint") {
			continue
		}
		body, _, err := store.Read(ctx, w.st, info.Key, &store.ReadOptions{Limit: 16 << 20})
		if err != nil {
			return nil, err
		}
		original[info.Key] = body
		if info.Key == commitZero {
			var lines [][]byte
			for line := range bytes.Lines(body) {
				if bytes.HasPrefix(line, []byte(`{"protocol"`)) {
					line = []byte(`{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}` + "\n")
				}
				lines = append(lines, line)
			}
			if body = bytes.Join(lines, nil); bytes.Equal(body, original[info.Key]) {
				return nil, errors.New("the first version sets no protocol")
			}
		}
		if err := put(info.Key, body); err != nil {
			return nil, err
		}
	}
	return original, put(stray, []byte("rows that nobody has committed"))
}
