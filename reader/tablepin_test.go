package reader_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// pinned reads on with a Table that has read the log before, and pins if there is an edit.
func pinned(table *reader.Table) ([]reader.Edit, manifest.Pin, error) {
	return table.ReadAndPin(context.Background(), func(news []reader.Edit) string {
		if len(news) == 0 {
			return ""
		}
		return "a table"
	})
}

// A Table that follows the log pins what it knew before. That takes two PUTs more than a Read, and
// nothing else; and nothing if the caller wants no pin.
func TestReadAndPin(t *testing.T) {
	inTable(t, time.Minute, func(w *table) {
		w.edit(1, 0)
		w.compact(8)
		r := w.reader(nil)
		table := r.Table()
		if _, pin, err := pinned(table); err != nil || pin.Key != "" {
			t.Fatalf("the first Read, which knows no version: %+v, %v", pin, err)
		}
		version := table.Version()
		requests := func(kind faultstore.Kind) int { return w.Faulty.Counts().Of(kind, "") }
		for _, edits := range []int{0, 1} {
			for range edits {
				w.edit(1, 0)
			}
			puts, lists, gets := requests(faultstore.Put), requests(faultstore.List), requests(faultstore.Get)
			news, pin, err := pinned(table)
			if err != nil || len(news) != edits || (pin.Key != "") != (edits > 0) {
				t.Fatalf("%d edits: %v, %+v, %v", edits, news, pin, err)
			}
			puts, lists, gets = requests(faultstore.Put)-puts, requests(faultstore.List)-lists, requests(faultstore.Get)-gets
			if puts != 2*edits || lists != 1 || gets != 1+edits {
				t.Errorf("%d edits: %d PUT, %d LIST, %d GET", edits, puts, lists, gets)
			}
			if edits > 0 && (pin.Version != version || pin.Name != "a table" || pin.TTL != 0) {
				t.Errorf("%+v, want version %d", pin, version)
			}
		}
		if pins, err := r.Pins(context.Background()); err != nil || len(pins) != 1 {
			t.Errorf("%v, %v", pins, err)
		}
	})
}

// known returns a Table that knows a version already, and its reader.
func (w *table) known() (*reader.Reader, *reader.Table) {
	w.Helper()
	w.edit(1, 0)
	w.compact(8)
	r := w.reader(nil)
	table := r.Table()
	if _, _, err := pinned(table); err != nil {
		w.Fatal(err)
	}
	return r, table
}

// guard:pin-after-mark. A compactor prunes the version that a Table knows, while the Table is about to pin
// it. There is no pin then.
func TestReadAndPinRacesPrune(t *testing.T) {
	inTable(t, time.Second, func(w *table) {
		r, table := w.known()
		version := table.Version()
		w.edit(1, 0)
		raced := w.Faulty.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "pin/")
		}, func(context.Context) {
			for range 3 {
				w.compact(8)
				time.Sleep(2 * time.Second)
			}
		})
		news, pin, err := pinned(table)
		if err != nil || len(news) != 1 || pin.Key != "" || !raced() {
			t.Errorf("version %d was pruned: edits %v, pin %+v, %v; raced: %v", version, news, pin, err, raced())
		}
		if pins, err := r.Pins(context.Background()); err != nil || len(pins) != 0 {
			t.Errorf("left are %v, %v", pins, err)
		}
	})
}

// A Read that fails after it has made a pin leaves none. The next one pins again.
func TestReadAndPinFails(t *testing.T) {
	inTable(t, time.Minute, func(w *table) {
		w.edit(1, 0)
		w.compact(8)
		r := w.reader(nil)
		for _, fault := range []string{"manifest/", "data/"} {
			table := r.Table()
			if _, _, err := pinned(table); err != nil {
				t.Fatal(err)
			}
			w.edit(1, 0)
			ctx, cancel := context.WithCancelCause(context.Background())
			gone := errors.New("the caller has gone")
			made := false
			cancelled := w.Faulty.BeforeFirst(func(op faultstore.Op) bool {
				made = made || op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "pin/")
				return made && strings.HasPrefix(op.Key, fault)
			}, func(context.Context) { cancel(gone) })
			want := func([]reader.Edit) string { return "a table" }
			if fault == "data/" { // the pin is made at a look at the manifest before the end
				w.takeOver()
				w.edit(1, 0)
			}
			_, pin, err := table.ReadAndPin(ctx, want)
			w.Faulty.SetBefore(nil)
			if !errors.Is(err, gone) || pin.Key != "" || !cancelled() {
				t.Fatalf("%s: %+v, %v; cancelled: %v", fault, pin, err, cancelled())
			}
			if pins, err := r.Pins(context.Background()); err != nil || len(pins) != 0 {
				t.Errorf("%s: left are %v, %v", fault, pins, err)
			}
			if _, pin, err := pinned(table); err != nil || pin.Key == "" {
				t.Errorf("%s: the next one: %+v, %v", fault, pin, err)
			} else if err := r.Release(context.Background(), pin); err != nil {
				t.Fatal(err)
			}
			cancel(nil)
		}
	})
}

// A walk looks at the manifest more than once: at a seal, and at its end. It makes one pin. It also
// tries only once, if the store has lost the answer to a write of that pin.
//
// guard:read-one-pin. Without this rule: a Table makes a pin when it looks at a seal, and another one
// at the end of the log; the caller gets the second pin; nobody knows of the first one, which has no
// TTL, so it holds its version for ever.
func TestReadAndPinOnce(t *testing.T) {
	for name, lost := range map[string]bool{"it is made": false, "it is lost": true} {
		t.Run(name, func(t *testing.T) {
			inTable(t, time.Minute, func(w *table) {
				w.edit(1, 0)
				w.compact(8)
				r := w.reader(nil)
				table := r.Table()
				if _, _, err := pinned(table); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					w.takeOver()
					w.edit(1, 0)
				}
				var mu sync.Mutex
				made := map[string]int{} // PUTs of each pin
				w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
					if op.Kind != faultstore.Put || !strings.HasPrefix(op.Key, "pin/") {
						return faultstore.Fault{}
					}
					mu.Lock()
					defer mu.Unlock()
					made[op.Key]++
					if lost && made[op.Key] == 2 {
						return faultstore.Fault{Err: faultstore.ErrTimeout}
					}
					return faultstore.Fault{}
				})
				before := w.Faulty.Counts()
				asked := 0
				news, pin, err := table.ReadAndPin(context.Background(), func([]reader.Edit) string { asked++; return "a table" })
				if err != nil || len(news) != 3 || (pin.Key == "") != lost {
					t.Fatalf("%v, %+v, %v", news, pin, err)
				}
				if n := w.Faulty.Counts().Of(faultstore.List, "manifest/") - before.Of(faultstore.List, "manifest/"); n < 2 {
					t.Fatalf("the manifest was looked at %d times, so this tests nothing", n)
				}
				mu.Lock()
				if len(made) != 1 || asked != 1 {
					t.Errorf("%d pins were made; want was called %d times", len(made), asked)
				}
				mu.Unlock()
				pins, err := r.Pins(context.Background())
				if err != nil || len(pins) > 1 || len(pins) == 1 && pins[0].Key != pin.Key || len(pins) == 0 && !lost {
					t.Errorf("left are %v, %v; returned was %+v", pins, err, pin)
				}
			})
		})
	}
}

// A Table that has read nothing for a grace period knows a version that may be pruned. It does not try to pin it.
func TestReadAndPinAfterGrace(t *testing.T) {
	inTable(t, time.Minute, func(w *table) {
		w.edit(1, 0)
		w.compact(8)
		table := w.reader(nil).Table()
		for _, c := range []struct {
			silence time.Duration
			pins    bool
		}{{0, false}, {59 * time.Second, true}, {time.Minute, false}, {59 * time.Second, true}} {
			time.Sleep(c.silence)
			w.edit(1, 0)
			before := w.Faulty.Counts().Of(faultstore.Put, "pin/")
			_, pin, err := pinned(table)
			if puts := w.Faulty.Counts().Of(faultstore.Put, "pin/") - before; err != nil || (pin.Key != "") != c.pins || (puts > 0) != c.pins {
				t.Errorf("%v after the last Read: %+v, %d PUT, %v", c.silence, pin, puts, err)
			}
		}
	})
}

// A pin that must be deleted again, and cannot be, stays under its name.
func TestReadAndPinThatStays(t *testing.T) {
	inTable(t, time.Minute, func(w *table) {
		r, table := w.known()
		w.edit(1, 0)
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Kind == faultstore.Delete || op.Kind == faultstore.List && op.Key == "manifest/" {
				return faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
			}
			return faultstore.Fault{}
		})
		if _, pin, err := pinned(table); !errors.Is(err, store.ErrDenied) || pin.Key != "" {
			t.Fatalf("%+v, %v", pin, err)
		}
		w.Faulty.SetHook(nil)
		pins, err := r.Pins(context.Background())
		if err != nil || len(pins) != 1 || pins[0].Name != "a table" {
			t.Fatalf("%v, %v", pins, err)
		}
		if err := r.Release(context.Background(), pins[0]); err != nil {
			t.Error(err)
		}
	})
}
