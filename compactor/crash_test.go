package compactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/faultstore"
)

// overtaken tells whether there is no error except that another compactor has taken over.
func overtaken(err error) bool { return err == nil || errors.Is(err, ErrFenced) }

// crashes are the ways in which a process dies at a request.
var crashes = []struct {
	name  string
	fault faultstore.Fault
}{{"before", faultstore.Fault{Drop: true}}, {"after", faultstore.Fault{}}, {"late", faultstore.Fault{Drop: true, Late: &faultstore.Late{}}}}

// A compactor that dies at any of its requests, before or after it was applied, or
// so that it lands when all is over, leaves nothing behind that the next one does not
// finish or delete.
func TestCrashAtEveryRequest(t *testing.T) {
	base := sample(t)
	for i, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			fault := c.fault
			places := base.everywhere(base.Token+1, small())
			tried := test.Square(len(crashes), len(places))
			for j, at := range places {
				if !tried(i, j) {
					continue
				}
				w := base.fork(t)
				w.watch(nil)
				fault.Crash = true
				reached := w.faultAt("dies", at, fault)
				dies := w.Faulty.Client("dies")
				w.Token++
				_, err := w.once(dies, w.Token, small())
				when := fmt.Sprintf("crashed at %v", at)
				if !reached.Load() {
					t.Fatalf("%s: it never came there", when)
				}
				// A request ahead that was not needed any more is cancelled, not crashed at.
				if dies.Crashed() != (err != nil) {
					t.Fatalf("%s, it says %v", when, err)
				}
				w.holds(when)
				next := w.Faulty.Client("next")
				w.compact(next, small())
				w.holds(when + ", finished by the next")
				w.tidy(when)
				if w.Faulty.Release(context.Background(), nil) == 0 {
					continue
				}
				w.holds(when + ", and then the late ones landed")
				w.Lead(1)
				w.compact(next, small())
				w.holds(when + ", and life went on")
				w.tidy(when + ", and life went on")
				if t.Failed() {
					return
				}
			}
		})
	}
}

// While a compactor waits at any of its requests, another one, with a later token
// or an earlier one, does all its work; or a month goes by, with new leaders,
// folds, merges and prunes.
func TestInterleavedAtEveryRequest(t *testing.T) {
	base := sample(t)
	scripts := []struct {
		name   string
		script func(w *world, token fence.Epoch)
	}{
		{"a successor", func(w *world, token fence.Epoch) { w.other(token + 1) }},
		{"a predecessor", func(w *world, token fence.Epoch) { w.other(token - 1) }},
		{"a leader", func(w *world, _ fence.Epoch) { w.Lead(1) }},
		{"junk in its way", func(w *world, token fence.Epoch) {
			before := w.Keys(layout.DataPrefix)
			w.other(token + 1)
			for i, key := range before {
				if pos, _ := layout.ParseDataKey(key); !w.Has(key) {
					w.Put(key, [][]byte{[]byte("junk"), w.Seal(pos, 99), w.Data(frame.Point{Position: pos}, "junk")}[i%3])
				}
			}
		}},
		{"a month", func(w *world, token fence.Epoch) {
			for i := range fence.Epoch(2) {
				w.Lead(2)
				w.other(token + 1 + i)
			}
			w.other(token + 3)
		}},
	}
	for i, c := range scripts {
		name, script := c.name, c.script
		t.Run(name, func(t *testing.T) {
			fenced, done := 0, 0
			token := base.Token + 10
			places := base.everywhere(token, small())
			tried := test.Square(len(scripts), len(places))
			for j, at := range places {
				if !tried(i, j) {
					continue
				}
				w := base.fork(t)
				here, reached := once("first", at), new(atomic.Bool)
				w.watch(func(_ context.Context, op faultstore.Op) {
					if here(op) {
						reached.Store(true)
						script(w, token)
					}
				})
				_, err := w.once(w.Faulty.Client("first"), token, small())
				when := fmt.Sprintf("interleaved at %v", at)
				if !reached.Load() {
					t.Fatalf("%s: it never came there", when)
				}
				if !overtaken(err) {
					t.Fatalf("%s: %v", when, err)
				}
				if err == nil {
					done++
				} else {
					fenced++
				}
				w.holds(when)
				w.Token = token + 10
				w.compact(w.Faulty, small())
				w.holds(when + ", finished by the next")
				w.tidy(when)
				if t.Failed() {
					return
				}
			}
			t.Logf("%d were fenced, %d were not", fenced, done)
			// A later one fences it wherever it still has an update to publish, and not
			// where it only deletes what is left; one that is not does so nowhere.
			if later := name != "a predecessor" && name != "a leader"; later && (fenced <= test.Of(0, 5) || done == 0) || !later && fenced > 0 {
				t.Errorf("%d were fenced, %d were not", fenced, done)
			}
		})
	}
}

// other runs another compactor to its end.
func (w *world) other(token fence.Epoch) {
	w.Helper()
	if _, err := w.once(w.Faulty.Client("other"), token, small()); !overtaken(err) {
		w.Errorf("the other: %v", err)
	}
}

// A reply that is lost, an echo, a refusal for now, a listing that breaks off and
// says all twice: at any request, they change nothing in what is done and told.
func TestFaultAtEveryRequest(t *testing.T) {
	base := sample(t)
	clean := base.fork(t)
	want := clean.compact(clean.Mem, small())
	faults := []struct {
		name  string
		fault faultstore.Fault
	}{
		{"no reply", faultstore.Fault{Err: faultstore.ErrTimeout}}, {"not sent", faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}},
		{"echo", faultstore.Fault{Err: faultstore.ErrEcho}}, {"breaks off", faultstore.Fault{Cut: true, Keep: 1, Err: faultstore.ErrReset}},
	}
	for i, c := range faults {
		name, fault := c.name, c.fault
		t.Run(name, func(t *testing.T) {
			places := base.everywhere(base.Token+1, small())
			tried := test.Square(len(faults), len(places))
			for j, at := range places {
				if !tried(i, j) {
					continue
				}
				w := base.fork(t)
				upload := at.kind == faultstore.Upload
				w.watch(nil)
				harm := fault
				if name == "echo" && at.kind != faultstore.Put {
					harm = faultstore.Fault{}
				}
				reached := w.faultAt("c", at, harm)
				w.Token++
				r, err := w.once(w.Faulty.Client("c"), w.Token, small())
				when := fmt.Sprintf("at %v", at)
				if !reached.Load() {
					t.Fatalf("%s: it never came there", when)
				}
				if upload && name != "echo" {
					// Not tried again within a pass: its body has gone by.
					if err == nil || errors.Is(err, state.ErrVoid) {
						t.Fatalf("%s: the upload failed, and the error is %v", when, err)
					}
					w.holds(when)
					w.compact(w.Faulty, small())
				} else if err != nil || fmt.Sprint(r.Folded, r.Records, r.Segments, r.Merged, r.Pruned) != fmt.Sprint(want.Folded, want.Records, want.Segments, want.Merged, want.Pruned) {
					t.Fatalf("%s: %+v, %v; without faults %+v", when, r, err, want)
				}
				w.holds(when)
				w.tidy(when)
			}
		})
	}
}

// A listing that always breaks off proves nothing, so nothing is deleted by it.
func TestBrokenListing(t *testing.T) {
	for _, prefix := range []string{"data/", "segment/", "tmp/"} {
		w := sample(t)
		// All of these could go; there are more than the listing tells.
		for i := range 3 {
			w.Put(layout.SegmentKey(layout.Compactor, 1, fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i)), []byte("orphan"))
			w.Put(fmt.Sprintf("tmp/%d", i), []byte("x"))
		}
		w.Faulty.SetHook(faultstore.Script(faultstore.Rule{
			Kind: faultstore.List, Prefix: prefix, Times: -1, Fault: faultstore.Fault{Cut: true, Keep: 2, Err: faultstore.ErrReset},
		}))
		var deleted atomic.Int64
		w.watch(func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Delete && strings.HasPrefix(op.Key, prefix) {
				deleted.Add(1)
			}
		})
		w.Token++
		_, err := w.once(w.Faulty, w.Token, nil)
		if !errors.Is(err, faultstore.ErrInjected) || deleted.Load() > 0 {
			t.Errorf("%s: %d deletes, and the error is %v", prefix, deleted.Load(), err)
		}
		w.holds(prefix)
	}
}
