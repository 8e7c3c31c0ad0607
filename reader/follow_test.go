package reader_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

// follower applies what a Table reads, as a publisher does.
type follower struct {
	*reader.Table
	edits  uint64
	files  map[string]bool
	places []reader.Place
	missed int
}

func (f *follower) read(t *table) {
	t.Helper()
	news, err := f.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if f.files == nil || len(news) > 0 && news[0].Number > f.edits+1 || f.Edits() > f.edits+uint64(len(news)) {
		f.missed++
		f.files = map[string]bool{}
		for file, err := range f.Files(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			f.files[file.Key] = true
		}
	} else {
		for i, e := range news {
			if e.Number != f.edits+uint64(i)+1 {
				t.Fatalf("edit %d comes after %d", e.Number, f.edits+uint64(i))
			}
			for _, a := range e.Change.Add {
				f.files[a.Key] = true
			}
			for _, key := range e.Change.Remove {
				delete(f.files, key)
			}
		}
	}
	f.edits = f.Edits()
	for _, e := range news {
		f.places = append(f.places, e.After)
	}
	f.places = append(f.places, f.End())
	var have []string
	for key := range f.files {
		have = append(have, key)
	}
	slices.Sort(have)
	if want := t.now().files; !slices.Equal(have, want) {
		t.Errorf("after edit %d: %d files, want %d", f.edits, len(have), len(want))
	}
	for _, p := range f.places {
		if ok, err := f.Contains(context.Background(), p); !ok || err != nil {
			t.Errorf("place %v is not on the chain: %v", p, err)
		}
	}
}

func TestTableFollowsEdits(t *testing.T) {
	for name, compaction := range compactions {
		t.Run(name, func(t *testing.T) {
			inTable(t, 0, func(w *table) {
				r := w.reader(nil)
				next := compaction(w)
				warm := &follower{Table: r.Table()}
				warm.read(w)
				w.story(func(i int) {
					warm.read(w)
					next(i)
					warm.read(w)
					(&follower{Table: r.Table()}).read(w)
				})
				if total := uint64(len(w.states)); warm.edits == 0 || warm.edits >= total {
					t.Errorf("%d edits of %d objects", warm.edits, total)
				}
				if name == "nothing is folded" && warm.missed != 1 {
					t.Errorf("a follower that was never overtaken has missed edits %d times", warm.missed)
				}
			})
		})
	}
}

// A follower that sleeps while a compactor folds and prunes finds the files all the same.
//
// guard:read-absent. A read to the end checks that at the first absent slot; a stream that follows the
// log checks it every half grace period. Without this check: a program follows the table, and its next
// slot is 2/1; that slot is written, folded and pruned; the program reads on, and finds slot 2/1
// absent; the newest manifest says that this slot was acknowledged, so the program reports damage in a
// sound log.
func TestTableIsOvertaken(t *testing.T) {
	inTable(t, 0, func(w *table) {
		f := &follower{Table: w.reader(nil).Table()}
		w.edit(3, 0)
		f.read(w)
		w.edit(1, 2)
		w.takeOver()
		w.edit(1, 1)
		w.compact(2)
		w.compact(2)
		f.read(w)
		if f.missed != 2 {
			t.Errorf("it has missed edits %d times, want 2: the first and the last time", f.missed)
		}
		w.edit(1, 1)
		f.read(w)
	})
}

// A log that was restored from a backup, and went on, does not contain the places that came
// after the backup, though it has as many edits and epochs.
func TestTableOfARestoredLog(t *testing.T) {
	for name, folded := range map[string]bool{"folded": true, "not folded": false} {
		t.Run(name, func(t *testing.T) {
			inTable(t, 0, func(w *table) {
				w.edit(2, 0)
				backup := w.Fork(t, nil)
				before := &follower{Table: w.reader(nil).Table()}
				before.read(w)
				kept := len(before.places)
				w.edit(1, 0)
				w.takeOver()
				w.edit(1, 0)
				before.read(w)

				restored := newTableAt(&world{Log: backup, segments: 4096, patience: time.Hour})
				for range 5 {
					restored.takeOver() // whoever goes on in a restored log opens it first
					restored.edit(1, 0)
				}
				if folded {
					restored.compact(2)
				}
				after := restored.reader(nil).Table()
				if _, err := after.Read(context.Background()); err != nil {
					t.Fatal(err)
				}
				for i, p := range before.places {
					ok, err := after.Contains(context.Background(), p)
					if err != nil || ok != (i < kept) {
						t.Errorf("place %v: %v, %v; want %v", p, ok, err, i < kept)
					}
				}
			})
		})
	}
}

func TestRelease(t *testing.T) {
	inTable(t, 0, func(w *table) {
		w.edit(1, 0)
		w.compact(2)
		r := w.reader(nil)
		a, err := r.Pin(context.Background(), "a", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Pin(context.Background(), "a", 0, 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.Release(context.Background(), a); err != nil {
				t.Error(err)
			}
		}
		left, err := r.Pins(context.Background())
		if err != nil || len(left) != 1 || left[0].Key == a.Key {
			t.Errorf("left are %v, %v", left, err)
		}
		for _, wrong := range []manifest.Pin{{Key: "format.json"}, {Key: a.Key, TTL: time.Minute}} {
			if err := r.Release(context.Background(), wrong); !errors.Is(err, reader.ErrOptions) {
				t.Errorf("%v: %v", wrong, err)
			}
		}
	})
}
