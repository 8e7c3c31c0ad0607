//go:build integration && unix

package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// metadata is what this test reads of a version of an Iceberg table.
type metadata struct {
	Location  string `json:"location"`
	Current   int    `json:"current-snapshot-id"`
	Snapshots []struct {
		ID      int               `json:"snapshot-id"`
		Summary map[string]string `json:"summary"`
	} `json:"snapshots"`
}

// hinted returns the version that the hint names, and the URL of its metadata. It returns nothing if there is none yet.
func hinted(ctx context.Context, root store.Store) (m *metadata, url string, err error) {
	hint, _, err := store.Read(ctx, root, "metadata/version-hint.text", &store.ReadOptions{Limit: 100})
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	key := fmt.Sprintf("metadata/v%s.metadata.json", hint)
	body, _, err := store.Read(ctx, root, key, &store.ReadOptions{Limit: 64 << 20})
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		return nil, "", err
	}
	return m, m.Location + "/" + key, nil
}

// whole reports whether what an engine has found are consecutive rows, each once.
func (c content) whole() bool {
	return c.Rows == 0 || c.Least != nil && c.Most != nil && c.String() == (span{*c.Least, *c.Most + 1}).content().String()
}

// TestIceberg: PyIceberg and DuckDB find each row once in the Iceberg table that publishers write beside the Delta table, whatever is killed
// meanwhile. In the end they find the same at each snapshot, and the Delta table has had the same rows.
func TestIceberg(t *testing.T) {
	python := installed(t)["duckdb"]
	if python == "" {
		t.Skip("Spark alone is there")
	}
	for name := range strings.SplitSeq(*places, ",") {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, name)
			st, root := p.open(t, "orders")
			location := p.table("orders")
			if p.dir != "" {
				location = "file://" + location
			}
			t.Setenv(locationEnv, location)
			if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Grace: time.Second}); err != nil {
				t.Fatal(err)
			}
			w := &world{T: t, url: p.url("orders"), table: p.table("orders"), st: st, h: newHistory(root)}
			for _, engine := range []string{"pyiceberg", "duckdb-iceberg"} {
				w.engines = append(w.engines, start(t, engine, python, p.env))
			}
			w.icebergUnderKill(root)
			newest := w.settled()
			w.snapshots(root, newest)
		})
	}
}

// at returns where an engine finds a table. From S3, DuckDB refuses a hint that moves while it reads the hint.
func (e *engine) at(table, metadata string) string {
	if e.name == "pyiceberg" || strings.HasPrefix(table, "s3:") {
		return metadata
	}
	return table
}

func (w *world) icebergUnderKill(root store.Store) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	c := &crew{t: w.T, url: w.url}
	c.start(ctx)
	var wait sync.WaitGroup
	begun := time.Now()
	for _, e := range w.engines {
		wait.Go(func() {
			reads := 0
			for !w.Failed() && (time.Since(begun) < *killTime || reads < leastReads) {
				m, url, err := hinted(w.Context(), root)
				if err == nil && m == nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				var got content
				if err == nil {
					got, err = e.read(e.at(w.table, url), -1)
				}
				if err != nil {
					w.Error(err)
				} else if !got.whole() {
					w.Errorf("%s reads %v, in which rows are missing or doubled", e.version, got)
				}
				reads++
			}
			w.Logf("%s has read %d times while workers were killed, each time each row once", e.version, reads)
		})
	}
	wait.Wait()
	cancel()
	c.g.Wait()
	if w.Failed() {
		w.FailNow()
	}
	w.Logf("%d workers were killed", c.killed.Load())
}

// snapshots compares what the engines find at snapshots with each other and with the Delta table.
func (w *world) snapshots(root store.Store, newest int) {
	w.Helper()
	m, url, err := hinted(w.Context(), root)
	w.fatal(err)
	step := 1
	if *travel > 0 {
		step = max(1, len(m.Snapshots) / *travel)
	}
	n, both := 0, 0
	for i := len(m.Snapshots) - 1; i >= 0 && !w.Failed(); i -= step {
		n++
		edits, err := strconv.ParseUint(m.Snapshots[i].Summary["fencepost.edits"], 10, 64)
		w.fatal(err)
		want, known := w.h.edits[edits] // versions of the two formats may have more than one edit
		if known {
			both++
		}
		for _, e := range w.engines {
			got, err := e.read(e.at(w.table, url), m.Snapshots[i].ID)
			switch {
			case err != nil:
				w.Error(err)
			case !got.whole() || known && got.String() != want.content().String() || fmt.Sprint(got.Rows) != m.Snapshots[i].Summary["total-records"]:
				w.Errorf("%s reads %v in snapshot %d, and the Delta table has %v after as many edits: %v", e.version, got, m.Snapshots[i].ID, want.content(), m.Snapshots[i].Summary)
			case m.Snapshots[i].ID == m.Current && got.String() != w.h.at(newest).content().String():
				w.Errorf("%s reads %v in the newest snapshot, and the Delta table has %v", e.version, got, w.h.at(newest).content())
			}
		}
	}
	w.Logf("at %d of %d snapshots both engines find each row once; Delta has the same at the %d numbers of edits that it has too", n, len(m.Snapshots), both)
}
