package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// actions returns the actions of a kind in one version.
func (k *lake) actions(v int64, kind string) (all []map[string]any) {
	k.Helper()
	for line := range strings.Lines(string(k.Body(commitName(v)))) {
		var a map[string]map[string]any
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			k.Fatal(err)
		}
		if a[kind] != nil {
			all = append(all, a[kind])
		}
	}
	return all
}

// A rewritten file is no change of data if all that it replaces were published. If one was not, and the
// edits are folded away, it is one.
//
// guard:delta-rewrite. Without this check: edit 4 adds file F; edit 5 replaces F by G, which has the
// same rows; one Delta version publishes both edits, so it adds only G; G is marked as no change of
// data; programs that follow the table's changes skip G, and never get the rows.
func TestRewrites(t *testing.T) {
	for name, unpublished := range map[string]bool{"all were published": false, "one was not": true} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				p := k.publisher(nil, nil)
				old := []string{k.rows(1), k.rows(1)}
				k.publish(p)
				if unpublished {
					old = append(old, k.rows(1))
				}
				f, err := fileOf(k.w, []order{{ID: 1}})
				if err == nil {
					err = f.SetReplaces(old)
				}
				if err == nil {
					err = k.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}, Remove: old})
				}
				if err != nil {
					t.Fatal(err)
				}
				if unpublished { // so that both edits are one version
					time.Sleep(time.Minute)
					k.compact()
					p = k.publisher(nil, nil)
				}
				r := k.publish(p)
				for _, kind := range []string{"add", "remove"} {
					all := k.actions(r.Version, kind)
					for _, a := range all {
						if a["dataChange"] != unpublished {
							t.Errorf("%s %v", kind, a)
						}
					}
					if len(all) == 0 {
						t.Errorf("there is no %s", kind)
					}
				}
			})
		})
	}
}

// rewrite commits a file with the rows of some others, which it replaces.
func (k *lake) rewrite(old ...string) string {
	k.Helper()
	var rows []order
	for _, key := range old {
		rows = append(rows, k.read(key)...)
	}
	f, err := fileOf(k.w, rows)
	if err == nil {
		err = f.SetReplaces(old)
	}
	if err == nil {
		err = k.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}, Remove: old})
	}
	if err != nil {
		k.Fatal(err)
	}
	return f.Key
}

func (k *lake) read(key string) []order {
	k.Helper()
	rows, err := parquet.Read[order](bytes.NewReader(k.Body(key)), int64(len(k.Body(key))))
	if err != nil {
		k.Fatal(err)
	}
	return rows
}

// A publisher is so late that edits share a version, and some of them rewrite files. A program that
// follows the table's changes gets each row once.
//
// guard:delta-rewrite-run. One Delta version may publish several edits. Without this rule: file F1 is
// published; edit 2 adds F2, and edit 3 replaces F1 and F2 by G, which has the rows of both; one
// version publishes both edits, so it removes F1 and adds G; the rows of F2 are new, so all of G is
// marked as a change of data; programs that follow the table's changes get the rows of F1 a second
// time.
func TestRewritesOfALatePublisher(t *testing.T) {
	for name, rewrites := range map[string]func(k *lake, published []string, fresh string){
		"one input was published": func(k *lake, old []string, fresh string) { k.rewrite(old[0], fresh) },
		"all were published":      func(k *lake, old []string, _ string) { k.rewrite(old...) },
		"none was":                func(k *lake, _ []string, fresh string) { k.rewrite(fresh) },
		"rewritten twice":         func(k *lake, old []string, _ string) { k.rewrite(k.rewrite(old...)) },
		"with others the second time": func(k *lake, old []string, fresh string) {
			k.rewrite(k.rewrite(old[0]), old[1], k.rewrite(fresh))
		},
		"two at once": func(k *lake, old []string, fresh string) {
			k.rewrite(old[0], fresh)
			k.rewrite(old[1], k.rows(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				p := k.publisher(nil, nil)
				old := []string{k.rows(2), k.rows(2)}
				k.publish(p)
				fresh := k.rows(2)
				rewrites(k, old, fresh)
				for range 70 {
					k.rows(1)
				}
				r := k.publish(p)
				if r.Version > 5 {
					t.Errorf("the edits share no versions: there are %d", r.Version)
				}
				seen := map[int64]int{}
				for v := range r.Version + 1 {
					for _, a := range k.actions(v, "add") {
						if a["dataChange"] == true {
							for _, row := range k.read("file/" + a["path"].(string)) {
								seen[row.ID]++
							}
						}
					}
					for _, a := range k.actions(v, "remove") {
						if a["dataChange"] == true {
							t.Errorf("version %d takes rows away: %v", v, a)
						}
					}
				}
				for id := range k.next {
					if seen[id+1] != 1 {
						t.Errorf("row %d was told %d times", id+1, seen[id+1])
					}
				}
				if got := k.version(r.Version).paths(); !slices.Equal(got, k.live()) {
					t.Errorf("%v, want %v", got, k.live())
				}
			})
		})
	}
}

// New columns come in a version of their own, before the files that have them.
//
// guard:delta-schema-grows. Without this rule: logs S and T are published as one table; S gets a file
// with the new column price, and a publisher adds it to the schema; T gets a file with the new column
// color, and its publisher creates a schema with T's columns only; engines no longer show any price.
func TestEvolution(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		k.publish(p)
		commitRows(k, []struct {
			ID    int64     `parquet:"id"`
			Extra string    `parquet:"extra"`
			Tags  []string  `parquet:"tags,list"`
			When  time.Time `parquet:"when,timestamp(microsecond)"`
		}{{ID: 7, When: time.Now()}})
		r := k.publish(p)
		if r.Version != 3 || len(k.actions(2, "metaData")) != 1 || len(k.actions(2, "add")) != 0 || len(k.actions(3, "add")) != 1 {
			t.Errorf("%+v", r)
		}
		schema := k.actions(2, "metaData")[0]["schemaString"].(string)
		for _, want := range []string{`"name":"sum"`, `"name":"extra","type":"string"`, `"elementType":"string"`, `"name":"when","type":"timestamp"`} {
			if !strings.Contains(schema, want) {
				t.Errorf("the schema is %s, and lacks %s", schema, want)
			}
		}
		if k.actions(2, "metaData")[0]["id"] != k.actions(0, "metaData")[0]["id"] {
			t.Error("the table has another id")
		}
	})
}

// fleet is some logs whose files lie below one root.
func fleet(t *testing.T, n int) (root store.Store, sources []delta.Source, all []*writer.Writer) {
	t.Helper()
	mem := memstore.New(&memstore.Options{Clock: clock.Go()})
	for i := range n {
		name := fmt.Sprintf("log%d", i)
		st, err := store.Sub(mem, name)
		if err == nil {
			_, err = manifest.Init(context.Background(), st, &manifest.InitOptions{Grace: -1})
		}
		var w *writer.Writer
		if err == nil {
			w, err = writer.Open(context.Background(), st, fence.NewToken(1), &writer.Options{Settle: logtest.Quick, Clock: clock.Go()})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close(context.Background()) })
		sources = append(sources, delta.Source{Log: st, Files: name + "/file/"})
		all = append(all, w)
	}
	return mem, sources, all
}

func commitTo[T any](t *testing.T, w *writer.Writer, rows []T) {
	t.Helper()
	f, err := fileOf(w, rows)
	if err == nil {
		err = w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Several logs are one table. One that does not fit is left out, and the others are not.
func TestManySources(t *testing.T) {
	root, sources, all := fleet(t, 5)
	p, err := delta.Open(context.Background(), root, sources, &delta.Options{Settle: logtest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range all {
		commitTo(t, w, []order{{ID: int64(i)}})
	}
	r, err := p.Publish(context.Background())
	if err = errors.Join(err, r.Err()); err != nil || r.Files != 5 {
		t.Fatal(r, err)
	}
	commitTo(t, all[1], []struct {
		ID string `parquet:"id"`
	}{{"x"}})
	for i := range 3 {
		commitTo(t, all[2+i], []order{{ID: int64(i)}})
	}
	r, err = p.Publish(context.Background())
	if err != nil || r.Files != 8 {
		t.Fatal(r, err)
	}
	for i, s := range r.Sources {
		if behind := s.Err != nil; behind != (i == 1) || behind != (s.Published < s.Edits) {
			t.Errorf("source %d: %+v", i, s)
		}
	}
	if again, err := delta.Open(context.Background(), root, append(sources, sources[0]), nil); !errors.Is(err, delta.ErrOptions) {
		t.Errorf("the same log twice: %v, %v", again, err)
	}
}

// Logs that share a second store for their files are one table at its root, with no log below.
func TestSecondStore(t *testing.T) {
	root := memstore.New(nil)
	var sources []delta.Source
	for i := range 3 {
		st := memstore.New(nil)
		if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Files: root}); err != nil {
			t.Fatal(err)
		}
		w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Files: root})
		if err != nil {
			t.Fatal(err)
		}
		commitTo(t, w, []order{{ID: int64(i)}})
		commitTo(t, w, []order{{ID: int64(i)}})
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, delta.Source{Log: st})
	}
	p, err := delta.Open(t.Context(), root, sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Publish(t.Context())
	if err = errors.Join(err, r.Err()); err != nil || r.Files != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	// A publisher of some of the partitions leaves the others, and tells them.
	q, err := delta.Open(t.Context(), root, sources[:1], nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := q.Publish(t.Context())
	want := []fence.ID{r.Sources[1].Log, r.Sources[2].Log}
	slices.SortFunc(want, func(a, b fence.ID) int { return strings.Compare(a.String(), b.String()) })
	if err = errors.Join(err, again.Err()); err != nil || again.Files != 6 || !slices.Equal(again.Others, want) || len(r.Others) > 0 {
		t.Errorf("%+v, %v", again, err)
	}
	sources[0].Files = "x/"
	if _, err := delta.Open(t.Context(), root, sources, nil); !errors.Is(err, delta.ErrOptions) {
		t.Error(err)
	}
}

// Of logs that have a folder each, one was deleted and created again. The others go on.
func TestAnotherLogInAFolder(t *testing.T) {
	root, sources, all := fleet(t, 2)
	p, err := delta.Open(t.Context(), root, sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		commitTo(t, w, []order{{ID: 1}})
	}
	round(t, p)
	if err := all[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for info, err := range store.ListAll(t.Context(), sources[0].Log, "", nil, nil) {
		if err == nil && !strings.HasPrefix(info.Key, "file/") {
			err = sources[0].Log.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := writer.Open(t.Context(), sources[0].Log, fence.NewToken(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close(context.Background()) }()
	commitTo(t, w, []order{{ID: 2}})
	commitTo(t, all[1], []order{{ID: 2}})
	if p, err = delta.Open(t.Context(), root, sources, nil); err != nil {
		t.Fatal(err)
	}
	if r := round(t, p, 0); r.Files != 3 || !errors.Is(r.Sources[0].Err, delta.ErrSource) || !strings.Contains(r.Sources[0].Err.Error(), "new place") {
		t.Errorf("%+v", r)
	}
}

// Two sources with a new column each: the table gets both.
func TestTwoSchemas(t *testing.T) {
	root, sources, all := fleet(t, 2)
	commitTo(t, all[0], []struct{ A int64 }{{1}})
	commitTo(t, all[1], []struct{ B string }{{"x"}})
	for _, s := range sources {
		p, err := delta.Open(context.Background(), root, []delta.Source{s}, &delta.Options{Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Publish(context.Background()); errors.Join(err, r.Err()) != nil {
			t.Fatal(err, r.Err())
		}
	}
	body, _, err := store.Read(context.Background(), root, "_delta_log/00000000000000000002.json", &store.ReadOptions{Limit: 1 << 20})
	if err != nil || !strings.Contains(string(body), `\"A\"`) || !strings.Contains(string(body), `\"B\"`) {
		t.Errorf("%s, %v", body, err)
	}
}

func TestRunAndUnpublish(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over := make(chan error)
		versions := make(chan int64, 100)
		p := k.publisher(nil, &delta.Options{Hooks: delta.Hooks{Published: func(r delta.Report) { versions <- r.Version }}})
		go func() { over <- p.Run(ctx) }()
		for i := range 10 {
			k.rows(1)
			if v := <-versions; v != int64(i+1) {
				t.Fatalf("edit %d is version %d", i+1, v)
			}
			time.Sleep(time.Hour)
		}
		r, err := k.publisher(nil, nil).Status(t.Context())
		if err != nil || r.Version != 10 || r.Sources[0].Published != 10 {
			t.Errorf("%+v, %v", r, err)
		}
		if r, err = k.publisher(nil, nil).Unpublish(t.Context()); err != nil || r.Files != 0 || len(k.pins()) != 0 {
			t.Errorf("%+v, %v, pins %v", r, err, k.pins())
		}
		k.rows(1)
		if err := <-over; !errors.Is(err, delta.ErrUnpublished) {
			t.Errorf("Run ends with %v", err)
		}
		if _, err := k.publisher(nil, nil).Unpublish(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

// A table that nobody publishes has no status, and cannot be unpublished.
func TestNoTable(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		_, err := k.publisher(nil, nil).Status(t.Context())
		_, err2 := k.publisher(nil, nil).Unpublish(t.Context())
		if !errors.Is(err, delta.ErrNoTable) || !errors.Is(err2, delta.ErrNoTable) {
			t.Errorf("%v, %v", err, err2)
		}
	})
}

// Files, rows and the cursor are one atom, and files are cut to size.
func TestWriter(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		w, err := delta.NewWriter(t.Context(), k.w, &delta.WriterOptions[order]{
			FileSize: 20_000, Rows: 1000, Compression: delta.Plain, Table: k.root, Settle: logtest.Quick,
			Partition: func(o *order) map[string]string { return map[string]string{"even": fmt.Sprint(o.ID%2 == 0)} },
		})
		if err != nil {
			t.Fatal(err)
		}
		var rows []order
		for i := range 20_000 {
			rows = append(rows, order{ID: int64(i), Name: fmt.Sprint("a longer name of order ", i)})
		}
		slices.SortStableFunc(rows, func(a, b order) int { return int(a.ID%2 - b.ID%2) })
		if err := w.Write(t.Context(), rows); err != nil || w.Pending() != 20_000 {
			t.Fatal(err, w.Pending())
		}
		if err := w.Commit(t.Context(), writer.Cursor([]byte("end"))); err != nil || w.Pending() != 0 {
			t.Fatal(err, w.Pending())
		}
		if n := len(k.live()); n < 4 || n > 100 {
			t.Errorf("there are %d files", n)
		}
		p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "even", Type: "boolean"}}})
		r := k.publish(p)
		if r.Files != len(k.live()) {
			t.Errorf("%+v", r)
		}
		// Without rows a commit moves the cursor, and only the cursor.
		if err := errors.Join(w.Commit(t.Context(), writer.Cursor([]byte("further"))), w.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
		plain, err := delta.NewWriter(t.Context(), k.w, &delta.WriterOptions[order]{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(plain.Write(t.Context(), nil), plain.Commit(t.Context(), writer.Cursor([]byte("further")))); err != nil {
			t.Fatal(err)
		}
		if after := k.publish(p); after.Version != r.Version || after.Sources[0].Edits != r.Sources[0].Edits {
			t.Errorf("a cursor alone made version %d of %d: %+v", after.Version, r.Version, after)
		}
		w.Close()
		next := k.Open(nil)
		defer k.Close(next)
		if at := string(next.Recovered().Cursor); at != "further" {
			t.Errorf("the next writer begins at %q", at)
		}
		if err := w.Write(t.Context(), rows); err == nil {
			t.Error("a closed writer writes")
		}
		type wrong struct {
			ID string `parquet:"id"`
		}
		if _, err := delta.NewWriter(t.Context(), k.w, &delta.WriterOptions[wrong]{Table: k.root}); !errors.Is(err, delta.ErrSchema) {
			t.Errorf("another type of a column: %v", err)
		}
		type odd struct {
			N uint32 `parquet:"n"`
		}
		if _, err := delta.NewWriter(t.Context(), k.w, &delta.WriterOptions[odd]{}); !errors.Is(err, delta.ErrSchema) || !strings.Contains(err.Error(), "unsigned") {
			t.Errorf("a type that Delta has not: %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []*delta.Options{
		{Retention: time.Minute}, {Every: time.Microsecond}, {Every: math.MaxInt64}, {Settle: &store.SettleOptions{Reads: -1}},
		{Partition: []delta.Column{{Name: "a b"}}}, {Partition: []delta.Column{{Name: "a", Type: "uuid"}}}, {Partition: []delta.Column{{Name: "a"}, {Name: "A"}}},
	} {
		if err := o.Validate(); !errors.Is(err, delta.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []*delta.WriterOptions[order]{{FileSize: 1}, {Rows: -1}, {Compression: "lzw"}, {Settle: &store.SettleOptions{Reads: -1}}} {
		if err := o.Validate(); !errors.Is(err, delta.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	mem := memstore.New(nil)
	for _, files := range []string{"x", "../", "_x/", "a b/", ".x/"} {
		if _, err := delta.Open(t.Context(), mem, []delta.Source{{Log: mem, Files: files}}, nil); !errors.Is(err, delta.ErrOptions) {
			t.Errorf("%q: %v", files, err)
		}
	}
	if _, err := delta.Open(t.Context(), nil, []delta.Source{{Log: mem}}, nil); !errors.Is(err, delta.ErrOptions) {
		t.Error(err)
	}
	if _, err := delta.Open(t.Context(), mem, nil, nil); !errors.Is(err, delta.ErrOptions) {
		t.Error(err)
	}
	for _, none := range []store.Store{nil, (*memstore.Store)(nil)} {
		if _, err := delta.Open(t.Context(), mem, []delta.Source{{Log: mem}, {Log: none}}, nil); !errors.Is(err, delta.ErrOptions) {
			t.Errorf("a source without a log: %v", err)
		}
	}
}
