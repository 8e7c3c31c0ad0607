package iceberg_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/iceberg"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// counted is a store that counts requests, and the bytes of the Iceberg table that are written.
type counted struct {
	store.Store
	mu    sync.Mutex
	n     map[string]int
	bytes map[string]int
}

func (c *counted) add(what, key string, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n, c.bytes = map[string]int{}, map[string]int{}
	}
	place := "log"
	switch {
	case strings.HasPrefix(key, "file/metadata/version-hint"):
		place = "hint"
	case strings.HasPrefix(key, "file/metadata/"):
		place = "iceberg"
	case strings.HasPrefix(key, "file/_delta_log/"):
		place = "delta"
	case strings.HasPrefix(key, "file/"):
		place = "files"
	}
	c.n[what+" "+place]++
	c.bytes[what+" "+place] += bytes
}

func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n, c.bytes = map[string]int{}, map[string]int{}
	return n
}

func (c *counted) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	c.add("GET", key, 0)
	return c.Store.Get(ctx, key, opts)
}

func (c *counted) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	c.add("PUT", key, len(body))
	return c.Store.Put(ctx, key, body, opts)
}

func (c *counted) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	c.add("LIST", prefix, 0)
	return c.Store.List(ctx, prefix, opts)
}

// TestRequests: what a commit costs a publisher of both formats that follows the log.
func TestRequests(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		c := &counted{Store: k.Mem}
		p := k.publisher(c, nil)
		var keys []string
		for range 4 {
			keys = append(keys, k.rows(1))
			k.publish(p)
		}
		for i := range 6 { // some merge manifests
			keys = append(keys, k.rows(1))
			c.take()
			k.publish(p)
			got := c.take()
			want := map[string]int{"PUT delta": 1, "LIST delta": 1, "PUT iceberg": 3, "LIST iceberg": 1, "GET files": 1, "LIST log": 1, "GET log": 2, "PUT hint": got["PUT hint"]}
			if i == 0 {
				t.Log(got)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("an append takes %v, want %v", got, want)
			}
		}
		// The two files lie in one manifest, or in two.
		k.remove(keys[0], keys[9])
		c.take()
		k.publish(p)
		got := c.take()
		t.Log(got)
		if got["PUT iceberg"] != 3 || got["LIST iceberg"] != 1 || got["GET iceberg"] > 2 {
			t.Errorf("a removal takes %v", got)
		}
		k.publish(p)
		c.take()
		k.publish(p)
		if got := c.take(); got["GET iceberg"] != 1 || got["LIST iceberg"]+got["PUT iceberg"] != 0 {
			t.Errorf("a round with nothing new takes %v", got)
		}
	})
}

// TestManyFiles: a commit to a table with many files writes what it adds, and a publisher can begin there.
func TestManyFiles(t *testing.T) {
	few, _ := manyFiles(t, 1_000)
	many, took := manyFiles(t, 100_000)
	t.Logf("an append writes %d bytes with 1,000 files and %d with 100,000; that took %v of wall time, with loading the table", few, many, took)
	if many > 3*few {
		t.Errorf("an append writes %d bytes, and %d with 1,000 files", many, few)
	}
}

func manyFiles(t *testing.T, n int) (bytes int, took time.Duration) {
	c := &counted{Store: memstore.New(nil)}
	root, err := store.Sub(c, "file")
	if err != nil {
		t.Fatal(err)
	}
	open := func() delta.Table {
		of, err := iceberg.Format(location).Open(delta.Place{Root: root, Clock: clock.Go(), Foreign: func(key, what string) { t.Error(key, what) }, Failed: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		return of
	}
	schema, err := delta.ParseSchema(`{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	of := open()
	s, err := of.Load(t.Context(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	log, next := fence.ID{1}, 0
	change := func(n int) *delta.Change {
		p := delta.Part{Log: log, Edits: uint64(next + 1)}
		for range n {
			next++
			p.Add = append(p.Add, delta.Added{Path: fmt.Sprintf("00000000000000000001/%08d-0000-4000-8000-000000000000.parquet", next), File: manifest.File{Size: 1000}, Footer: &delta.Footer{
				Schema: schema, Rows: 10, Columns: []delta.ColumnStats{{Path: []string{"id"}, Type: "long", Values: 10, CountsNulls: true, Low: int64(next), High: int64(next + 1)}},
			}})
		}
		return &delta.Change{Operation: "publish", Parts: []delta.Part{p}}
	}
	create := func(c *delta.Change) {
		if ok, err := of.Create(t.Context(), s, c); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	create(&delta.Change{Operation: "create", Meta: &delta.Meta{ID: "9c12d441-03fe-4693-9a96-a0705ddf69c1", Schema: schema, Retention: time.Hour}})
	for next < n { // as many commits for each table, so as many snapshots
		create(change(n / 50))
	}
	begun := time.Now()
	of = open()
	if s, err = of.Load(t.Context(), nil, false); err != nil || s.Len() != n {
		t.Fatal(err)
	}
	c.take()
	create(change(1))
	bytes = c.bytes["PUT iceberg"]
	return bytes, time.Since(begun)
}

// TestSnapshotsAreThinned: a version lists at most 1,000 snapshots, whatever the retention.
func TestSnapshotsAreThinned(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		for range 1_100 {
			k.rows(1)
			k.publish(p)
		}
		e := k.engine()
		d, err := e.document(e.newest())
		if err != nil || len(d.Snapshots) > 1000 || len(d.Snapshots) < 500 {
			t.Fatalf("%d snapshots, %v", len(d.Snapshots), err)
		}
		for _, i := range []int{0, 1, 200, len(d.Snapshots) - 1} {
			if files, err := e.files(d, d.Snapshots[i].ID); err != nil || fmt.Sprint(len(files)) != d.Snapshots[i].Summary["total-data-files"] {
				t.Errorf("snapshot %d: %d files, %v", d.Snapshots[i].ID, len(files), err)
			}
		}
	})
}

// TestRetention: all files of each snapshot within the retention exist, and what only older ones need is deleted.
func TestRetention(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, &delta.Options{Retention: time.Hour})
		key := k.rows(1)
		most := 0
		for i := range 200 {
			key = k.rows(1, key)
			k.publish(p)
			time.Sleep(2 * time.Minute)
			if i%5 == 0 {
				k.compact()
			}
			most = max(most, len(k.keys()))
		}
		e := k.engine()
		d, err := e.document(e.newest())
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Snapshots) < 29 || len(d.Snapshots) > 60 || most > 250 {
			t.Errorf("%d snapshots, and up to %d objects", len(d.Snapshots), most)
		}
		for i, s := range d.Snapshots {
			list, err := e.avro(s.List)
			for _, m := range list {
				if err == nil {
					_, err = e.body(strings.TrimPrefix(m["manifest_path"].(string), "mem://bucket/"))
				}
			}
			if err == nil && i >= len(d.Snapshots)-29 {
				_, err = e.files(d, s.ID)
			}
			if err != nil {
				t.Errorf("snapshot %d, the %dth of %d: %v", s.ID, i, len(d.Snapshots), err)
			}
		}
	})
}
