package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
)

func commitName(v int64) string { return fmt.Sprintf("file/_delta_log/%020d.json", v) }
func checkpointName(v int64) string {
	return fmt.Sprintf("file/_delta_log/%020d.checkpoint.parquet", v)
}

// versions publishes n versions, one by one.
func (k *lake) versions(p *delta.Publisher, n int) {
	k.Helper()
	var last string
	for range n {
		var remove []string
		if last != "" {
			remove = []string{last}
		}
		last = k.rows(1, remove...)
		k.publish(p)
	}
}

// told collects what a publisher says of foreign hands.
func told(into *[]string) *delta.Options {
	return &delta.Options{Hooks: delta.Hooks{Foreign: func(f delta.Foreign) { *into = append(*into, f.Key+": "+f.What) }}}
}

// damage is what somebody does to a published table, and what a publisher says then.
type damage struct {
	do    func(k *lake)
	is    error
	says  string // in the error
	hook  string // in what the hook is told; the table is published all the same
	small bool   // the table has no checkpoint
}

var damages = map[string]damage{
	"a version is missing":             {do: func(k *lake) { k.Remove(commitName(104)) }, is: delta.ErrDamaged, says: "104.json is gone"},
	"the first version is missing":     {do: func(k *lake) { k.Remove(commitName(0)) }, is: delta.ErrDamaged, says: "00.json", small: true},
	"a commit is cut off":              {do: func(k *lake) { k.Put(commitName(103), k.Body(commitName(103))[:100]) }, is: delta.ErrDamaged, says: "103.json, line 1"},
	"a commit is empty":                {do: func(k *lake) { k.Put(commitName(103), []byte("\n")) }, is: delta.ErrDamaged, says: "no action"},
	"a commit has another file's size": {do: func(k *lake) { k.swap(commitName(103), `"size":`, `"size":1`) }, is: delta.ErrDamaged, says: "checksum"},
	"a commit lacks its file": {do: func(k *lake) {
		lines := bytes.SplitAfter(k.Body(commitName(102)), []byte("\n"))
		k.Put(commitName(102), bytes.Join(slices.DeleteFunc(lines, func(l []byte) bool { return bytes.HasPrefix(l, []byte(`{"add"`)) }), nil))
	}, is: delta.ErrDamaged, says: "102"},
	"another program has appended": {do: func(k *lake) {
		k.Put(commitName(107), []byte(`{"commitInfo":{"operation":"WRITE","engineInfo":"spark"}}`+"\n"+`{"add":{"path":"part-1.parquet","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`+"\n"))
	}, is: delta.ErrForeign, says: `107.json is by "spark WRITE"; restore the table to version 106`},
	"a path leaves the root": {do: func(k *lake) {
		k.swap(commitName(103), `"path":"0`, `"path":"../0`)
	}, is: delta.ErrDamaged, says: "lies outside"},
	"a file of another log": {do: func(k *lake) { k.swap(commitName(103), `"fencepost.log":"`, `"spark.log":"`) }, is: delta.ErrDamaged, says: "another program"},
	"a protocol that is not ours": {do: func(k *lake) {
		for v := range int64(6) {
			k.swap(commitName(v), `"minReaderVersion":1`, `"minReaderVersion":3`)
		}
	}, is: delta.ErrForeign, says: "protocol", small: true},
	"the checkpoint is corrupt":                {do: func(k *lake) { k.flip(checkpointName(100)) }, hook: "100.checkpoint.parquet: it does not fit"},
	"the checkpoint is no Parquet":             {do: func(k *lake) { k.Put(checkpointName(100), []byte("PAR1 no PAR1")) }, hook: "cannot be read"},
	"the checkpoint is empty":                  {do: func(k *lake) { k.Put(checkpointName(100), nil) }, hook: "cannot be read"},
	"the checkpoint claims billions":           {do: func(k *lake) { k.Put(checkpointName(100), []byte(claim)) }, hook: "claims 2147483647 elements"},
	"a checkpoint of another state":            {do: func(k *lake) { k.Put(checkpointName(103), k.Body(checkpointName(100))) }, hook: "103.checkpoint.parquet: it does not fit"},
	"a wrong checkpoint of the newest version": {do: func(k *lake) { k.Put(checkpointName(106), k.Body(checkpointName(100))) }, hook: "106.checkpoint.parquet: it does not fit"},
	"a checkpoint of the future":               {do: func(k *lake) { k.Put(checkpointName(200), k.Body(checkpointName(100))) }, hook: "the newest commit is 106"},
	"a checkpoint in parts": {do: func(k *lake) {
		k.Put("file/_delta_log/00000000000000000105.checkpoint.0000000001.0000000002.parquet", []byte("x"))
	}, hook: "left alone"},
	"junk in the log":              {do: func(k *lake) { k.Put("file/_delta_log/_commits/x.json", []byte("x")) }, hook: "left alone"},
	"_last_checkpoint is nonsense": {do: func(k *lake) { k.Put("file/_delta_log/_last_checkpoint", []byte("{")) }},
}

func (k *lake) swap(key, old, with string) {
	k.Put(key, bytes.ReplaceAll(k.Body(key), []byte(old), []byte(with)))
}

func (k *lake) flip(key string) {
	body := bytes.Clone(k.Body(key))
	for i := range body[100:200] {
		body[100+i] ^= 0x55
	}
	k.Put(key, body)
}

// Whatever has happened to the Delta log, a publisher goes on from a sound state, or says what
// is wrong and writes nothing.
//
// guard:delta-checkpoint. Without this check: another program writes a checkpoint of version 106, the
// newest, that lacks the last six edits of a log; a publisher starts from it, and publishes these edits
// a second time; programs that follow the table's changes get their rows twice; if they were published
// one by one, they fit only the wrong checkpoint, so nobody can read the table from a right one.
//
// guard:delta-fits. A commit says how many files the table has after it, and has a checksum of the
// whole state. Without this check: another program deletes the line of a file from a commit, and keeps
// the first line, which has the checksum; a publisher goes on from there; the commit says that the
// file's edit is published, so later Delta versions lack the file, which is live in its log.
func TestDamage(t *testing.T) {
	var small, large map[string][]byte
	inLake(t, func(t *testing.T, k *lake) {
		k.versions(k.publisher(nil, nil), 6)
		small = k.Objects()
		k.versions(k.publisher(nil, nil), 100)
		k.rows(1) // and one more edit than is published
		large = k.Objects()
	})
	for name, d := range damages {
		t.Run(name, func(t *testing.T) {
			logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
				objects := large
				if d.small {
					objects = small
				}
				for key, body := range objects {
					l.Put(key, body)
				}
				d.check(t, &lake{Log: l})
			})
		})
	}
}

func (d *damage) check(t *testing.T, k *lake) {
	t.Helper()
	d.do(k)
	before := k.Keys("file/_delta_log/")
	var hooks []string
	_, err := k.publisher(nil, told(&hooks)).Publish(context.Background())
	if d.is != nil {
		if text := fmt.Sprint(err); !errors.Is(err, d.is) || !strings.Contains(text, d.says) {
			t.Errorf("got %v, want %v that says %q", err, d.is, d.says)
		} else if !strings.Contains(text, "_delta_log/0") || !strings.Contains(text, "publish to a new place") || !strings.Contains(text, "restore the ") {
			t.Errorf("%v names no object, or does not say what to do", err)
		}
		if after := k.Keys("file/_delta_log/"); !slices.Equal(before, after) {
			t.Errorf("there were %d objects, and now there are %d", len(before), len(after))
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if d.hook != "" && !strings.Contains(strings.Join(hooks, "\n"), d.hook) {
		t.Errorf("the hook was told %q, want %q", hooks, d.hook)
	}
	newest := int64(len(slices.DeleteFunc(k.Keys("file/_delta_log/"), func(key string) bool { return !strings.HasSuffix(key, ".json") || strings.Contains(key, "_commits") }))) - 1
	if got := k.version(newest).paths(); newest < 107 || !slices.Equal(got, k.live()) {
		t.Errorf("version %d has %v, want %v", newest, got, k.live())
	}
}

// A source that cannot be published says why.
func TestBadSources(t *testing.T) {
	bad := map[string]struct {
		do   func(k *lake)
		is   error
		says string
	}{
		"a table of another log": {(*lake).anotherLog, delta.ErrSource, "create this log at a new place"},
		"no Parquet":             {func(k *lake) { k.raw([]byte("just some text, long enough"), nil) }, delta.ErrSource, "is no Parquet file"},
		"an empty file":          {func(k *lake) { k.raw(nil, nil) }, delta.ErrSource, "0 bytes"},
		"half a Parquet":         {func(k *lake) { k.raw(k.Body("file/" + k.live()[0])[400:], nil) }, delta.ErrSource, "is no Parquet file"},
		"a file that is gone": {func(k *lake) {
			k.Remove(k.rows(1))
		}, delta.ErrSource, "is gone"},
		"a file that was replaced": {func(k *lake) {
			k.Put(k.rows(1), []byte("something else that is longer than before, or shorter"))
		}, delta.ErrSource, "was replaced or damaged"},
		"another type": {func(k *lake) {
			commitRows(k, []struct {
				ID string `parquet:"id"`
			}{{"x"}})
		}, delta.ErrSchema, "the column id is string, and long in the table"},
		"another case": {func(k *lake) {
			commitRows(k, []struct {
				ID int64 `parquet:"Id"`
			}{{1}})
		}, delta.ErrSchema, "is called id in the table"},
	}
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				p := k.publisher(nil, nil)
				k.rows(1)
				k.publish(p)
				b.do(k)
				if k.anew {
					p = k.publisher(nil, nil)
				}
				r, err := p.Publish(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Err(); !errors.Is(err, b.is) || !strings.Contains(fmt.Sprint(err), b.says) {
					t.Errorf("got %v, want %v that says %q", err, b.is, b.says)
				} else if text := err.Error(); !k.anew && !strings.Contains(text, "remove it from the log's table with an edit") {
					t.Errorf("%v does not say what to do", err)
				}
				if r.Version != 1 {
					t.Errorf("it has published version %d", r.Version)
				}
			})
		})
	}
}

// anotherLog replaces the log by another one, and keeps its files and its Delta log.
func (k *lake) anotherLog() {
	k.Close(k.w)
	k.Remove(slices.DeleteFunc(k.Keys(""), func(key string) bool { return strings.HasPrefix(key, "file/") })...)
	if _, err := manifest.Init(context.Background(), k.Mem, &manifest.InitOptions{Probed: fixture.Probed(time.Now())}); err != nil {
		k.Fatal(err)
	}
	k.w, k.anew = k.Open(nil), true
	k.rows(1)
}

// What another program has left beside the files is told, and is not deleted.
func TestForeignFiles(t *testing.T) {
	foreign := []string{"day=2026-11-26/part-1.parquet", "part-00000-9f3a-c000.snappy.parquet", "00000000000000000001/part-1.parquet"}
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		k.publish(k.publisher(nil, nil))
		look := func() (hooks []string) {
			if r, err := k.publisher(nil, told(&hooks)).Status(t.Context()); errors.Join(err, r.Err()) != nil {
				t.Fatal(err, r.Err())
			}
			return hooks
		}
		if got := look(); len(got) > 0 {
			t.Errorf("without strange files: %q", got)
		}
		for _, name := range foreign {
			k.Put("file/"+name, []byte("x"))
		}
		got := look()
		for _, name := range foreign {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, name+": no log writes") }) {
				t.Errorf("%s is not told: %q", name, got)
			}
		}
		time.Sleep(30 * day)
		k.rows(1)
		k.publish(k.publisher(nil, nil))
		k.prune()
		for _, name := range foreign {
			if !k.Has("file/" + name) {
				t.Errorf("%s is gone", name)
			}
		}
	})
	// In a store that logs share, their marks are not strange.
	root, sources, all := shared(t, 2)
	for _, w := range all {
		commitTo(t, w, []order{{ID: 1}})
	}
	var hooks []string
	p, err := delta.Open(t.Context(), root, sources[:1], told(&hooks))
	if err != nil {
		t.Fatal(err)
	}
	round(t, p)
	if _, err := root.Put(t.Context(), "part-1.parquet", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Status(t.Context()); err != nil || len(hooks) != 1 || !strings.HasPrefix(hooks[0], "part-1.parquet: ") {
		t.Errorf("%q, %v", hooks, err)
	}
}

// A table in a log's own store is that log's. An error names both logs, and what it advises helps.
//
// guard:delta-one-log. Without this check: an operator deletes a log, but not the folder with its
// files, where the Delta log is too; a new log is created at that place, and published; the next Delta
// version has the files of both logs, and queries read the rows of the deleted log among those of the
// new one.
func TestTableOfAnotherLog(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		old := k.publish(p).Sources[0].Log
		k.anotherLog()
		p = k.publisher(nil, nil)
		for what, look := range map[string]func(context.Context) (delta.Report, error){"publish": p.Publish, "status": p.Status} {
			r, err := look(t.Context())
			if err != nil || r.Version != 1 || !slices.Equal(r.Others, []fence.ID{old}) {
				t.Errorf("%s: %+v, %v", what, r, err)
			}
			text := fmt.Sprint(r.Err())
			for _, id := range []fence.ID{old, r.Sources[0].Log} {
				if !strings.Contains(text, id.String()) {
					t.Errorf("%s: %s names no %s", what, text, id)
				}
			}
		}
		k.Remove(k.Keys("file/_delta_log/")...)
		if r := k.publish(k.publisher(nil, nil)); r.Files != 1 || len(r.Others) > 0 {
			t.Errorf("without the old Delta log: %+v", r)
		}
	})
}

// A publisher that finds nothing new has read the table all the same: what it reports is there. Others may have taken the log
// out, and added versions since.
func TestNothingNewButUnpublished(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		k.publish(p)
		if _, err := k.publisher(nil, nil).Unpublish(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := p.Publish(t.Context())
		if err != nil || !errors.Is(r.Err(), delta.ErrUnpublished) || r.Version != 2 || r.Files != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A log that was taken out of a table leaves its place to another.
func TestTableOfAnUnpublishedLog(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		k.publish(k.publisher(nil, nil))
		if _, err := k.publisher(nil, nil).Unpublish(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.anotherLog()
		if r := k.publish(k.publisher(nil, nil)); r.Files != 1 || r.Version != 3 || len(r.Others) > 0 {
			t.Errorf("%+v", r)
		}
	})
}

func commitRows[T any](k *lake, rows []T) (key string) {
	k.Helper()
	f, err := fileOf(k.w, rows)
	if err == nil {
		err = k.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}})
	}
	if err != nil {
		k.Fatal(err)
	}
	return f.Key
}

// A log that was restored from a backup is not published to the same table, whether it has fewer edits
// by now or more.
//
// guard:delta-place. A Delta version names the slot up to which a log is published, and the seal that
// opened the slot's epoch. If the log's chain lacks them, it was restored from an older backup. Without
// this check: edits 1 to 3 are published; the log is restored from a backup with edit 1, and gets two
// other edits; the counts agree, so the publisher goes on with edit 4; the table has the files of the
// lost edits.
func TestRestored(t *testing.T) {
	for _, edits := range []int{0, 1, 2, 3} {
		for _, folded := range []bool{false, true} {
			t.Run(fmt.Sprint(edits, folded), func(t *testing.T) {
				inLake(t, func(t *testing.T, k *lake) {
					p := k.publisher(nil, nil)
					k.rows(1)
					k.publish(p)
					backup := k.Objects()
					k.rows(1)
					k.rows(1)
					k.publish(p)
					k.Close(k.w)

					for _, key := range k.Keys("") {
						if !strings.Contains(key, "_delta_log") {
							k.Remove(key)
						}
					}
					for key, body := range backup {
						if !strings.Contains(key, "_delta_log") {
							k.Put(key, body)
						}
					}
					k.w = k.Open(nil)
					for range edits {
						k.rows(1)
					}
					if folded {
						time.Sleep(time.Minute)
						k.compact()
					}
					// One that has run all the time may see a log that is damaged, or none of it.
					if r, err := p.Publish(context.Background()); err == nil && r.Versions > 0 {
						t.Errorf("it has published %+v", r)
					}
					r, err := k.publisher(nil, nil).Publish(context.Background())
					if err = errors.Join(err, r.Err()); !errors.Is(err, delta.ErrSource) || !strings.Contains(fmt.Sprint(err), "restored from a backup") {
						t.Errorf("another says %v", err)
					}
				})
			})
		}
	}
}
