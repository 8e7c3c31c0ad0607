package writer_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// warm is how many commits a hedging writer has made, 10 ms each: it knows what is
// late, and may send two of them twice.
const warm = 40

// hedging opens a writer that hedges, as client a in epoch 1.
func (e *env) hedging() *writer.Writer {
	e.Helper()
	e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataPrefix, Skip: 1, Times: warm, Fault: faultstore.Fault{Delay: 10 * time.Millisecond}})
	w := e.open("a", 1, &writer.Options{Concurrency: 4, Window: 8, BatchBytes: 1, Checkpoint: -1, Hedge: 0.95})
	for i := range warm {
		e.append(w, fmt.Sprint(i))
	}
	e.Faulty.ResetCounts()
	return w
}

// One request hangs, and all after it wait: its twin does not hang.
func TestHedge(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.hedging()
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, warm+1)), Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{}}})
		start := time.Now()
		fs := e.several(w, fmt.Sprint(warm), fmt.Sprint(warm+1))
		e.append(w, fmt.Sprint(warm+2))
		if took := time.Since(start); took > 11*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		e.outcomes(fs, "committed", "committed")
		if e.puts() != 4 {
			t.Errorf("three commits took %d requests", e.puts())
		}
		time.Sleep(30 * 24 * time.Hour)
		if n := e.Faulty.Release(t.Context(), nil); n != 1 {
			t.Errorf("%d were late", n)
		}
		e.numbers(warm + 3)
	})
}

// An object that is answered after a later one is sent
// again at once, unless it was sent because it is full, or is large and the later one is much smaller.
//
// tuning:hedge-full. Without this rule: a pipeline is full of objects of 64 KiB, and sixteen are sent
// at almost the same time; most are overtaken soon; one in five is sent twice, although the line is
// busy and no client waits for one object alone.
//
// tuning:hedge-overtaken. Without this rule: nine of ten requests take 30 ms, and the tenth 80 ms; slot
// 5 is slow, and slots 6 and 7 are applied; their clients, and those of slot 5, wait for 40 ms more,
// although a second request for slot 5 would be answered in 30 ms.
//
// tuning:hedge-size. Without this rule: clients append 100 bytes each while one appends 1 MB, which
// takes 50 ms longer on a slow line; each object of 1 MB is overtaken; one in five is sent twice, and
// that takes as long again.
func TestHedgeOvertaken(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second int // their sizes in bytes
		full          bool
		want          int
	}{
		{"small", 1, 1, false, 3},
		{"smaller", 200_000, 1, false, 3},
		{"full", 1, 1, true, 2},
		{"large by a small one", 300_000, 1, false, 2},
		{"large by less than half of it", 600_000, 290_000, false, 2},
		{"large by a large one", 600_000, 310_000, false, 3},
	} {
		t.Run(c.name, bubbled(func(t *testing.T, e *env) {
			opts := writer.Options{Checkpoint: -1, Concurrency: 4, Hedge: 0.95, NoCompress: true}
			if c.full {
				opts.BatchBytes = 1
			}
			w, latency := e.paced(&opts)
			e.thinking(w, 20, "x")
			e.append(w, strings.Repeat("x", 1_500_000))
			e.append(w, strings.Repeat("x", 1_500_000)) // enough bytes to send a fifth of them again
			time.Sleep(time.Second)
			e.Faulty.ResetCounts()
			*latency = 500 * ms
			first := e.async(w, strings.Repeat("0", c.first))
			synctest.Wait()
			*latency = ms
			second := e.async(w, strings.Repeat("1", c.second))
			for e.puts() < 2 {
				time.Sleep(ms)
				synctest.Wait()
			}
			time.Sleep(2 * ms) // the second is answered; the first is not late yet
			synctest.Wait()
			if got := e.puts(); got != c.want {
				t.Errorf("%d requests were sent, want %d", got, c.want)
			}
			e.outcomes([]writer.Future{first, second}, "committed", "committed")
		}))
	}
}

// Of the objects for which all clients wait each eighth is sent twice at
// once, where that saves enough.
//
// tuning:pace-worth. Where all clients wait for one object after the other, the writer sends every
// eighth as two equal requests at once, and takes the first answer. Without this check: each request
// takes 28 ms; every eighth object is paid for twice, and is answered after 28 ms nevertheless.
//
// tuning:hedge-alone. Without this rule: 16 clients wait for one object after the other; half of the
// requests take 20 ms, the others 60 ms; no object overtakes another, so none is sent again; each
// eighth round takes 40 ms on average, instead of 30 ms.
func TestHedgeAlone(t *testing.T) {
	const rounds = 80
	for _, c := range []struct {
		name        string
		least, most time.Duration // of requests, in turns
		clients     int
		think       time.Duration
		second      int
	}{
		{"times vary", 20 * ms, 60 * ms, 3, 0, rounds / 8},
		{"times vary, and there is one client", 20 * ms, 60 * ms, 1, 0, rounds / 8},
		{"times vary a little", 28 * ms, 36 * ms, 3, 0, 0},
		{"all times are the same", 30 * ms, 30 * ms, 3, 0, 0},
		{"times vary, and the client thinks", 20 * ms, 60 * ms, 1, 10 * ms, 0},
	} {
		t.Run(c.name, bubbled(func(t *testing.T, e *env) {
			w, latency := e.paced(&writer.Options{Checkpoint: -1})
			var all sync.WaitGroup
			for client := range c.clients {
				all.Go(func() {
					for i := range 40 + rounds { // at first the writer learns
						if client == 0 {
							if i == 40 {
								e.Faulty.ResetCounts()
							}
							set(latency, []time.Duration{c.least, c.most}[i%2])
						}
						e.append(w, "x")
						time.Sleep(c.think)
					}
				})
			}
			all.Wait()
			// Clients that are acknowledged together do not always come in the same order, so an object
			// more or less is sent twice.
			if second := e.puts() - rounds; second < c.second*3/4 || second > c.second*3/2 {
				t.Errorf("of %d objects %d were sent twice, want about %d", rounds, second, c.second)
			}
		}))
	}
}

// An object with several edits is sent twice at once, if that saves
// enough. The files that these edits add earn most of the second requests.
//
// tuning:hedge-shared. Without this rule: 16 clients write a file each and commit it, again and again;
// half of the requests take 20 ms, the others 60 ms; each such object takes 40 ms on average, while
// three of four could take 30 ms. Each commit pays for at most two requests nevertheless: its file and
// its share of the object.
func TestHedgeShared(t *testing.T) {
	for _, c := range []struct {
		name        string
		least, most time.Duration // of requests, in turns
		clients     int
		files       bool
		from, to    float64 // share of the objects that are sent twice
	}{
		{"times vary", 20 * ms, 60 * ms, 3, true, 0.25, 0.5}, // every second one has several edits
		{"times vary, no files", 20 * ms, 60 * ms, 3, false, 0.1, 0.3},
		{"one client", 20 * ms, 60 * ms, 1, true, 0.11, 0.13},
		{"all times are the same", 30 * ms, 30 * ms, 3, true, 0, 0},
	} {
		t.Run(c.name, bubbled(func(t *testing.T, e *env) {
			w, latency := e.paced(&writer.Options{Checkpoint: -1})
			var mu sync.Mutex
			objects := map[string]bool{}
			e.before("a", faultstore.Put, layout.DataPrefix, func(op faultstore.Op) bool {
				mu.Lock()
				defer mu.Unlock()
				objects[op.Key] = true
				return false
			})
			var all sync.WaitGroup
			for client := range c.clients {
				all.Go(func() {
					for i := range 160 { // at first the writer learns, and spends what was saved
						if client == 0 {
							if i == 80 {
								e.Faulty.ResetCounts()
								mu.Lock()
								clear(objects)
								mu.Unlock()
							}
							set(latency, []time.Duration{c.least, c.most}[i%2])
						}
						edit := manifest.Edit{Properties: map[string]string{fmt.Sprint(client): fmt.Sprint(i)}}
						if c.files {
							edit.Add = []manifest.File{e.file(w, "x")}
						}
						e.commit(w, edit)
					}
				})
			}
			all.Wait()
			share := float64(e.puts()-len(objects)) / float64(len(objects))
			if share < c.from || share > c.to {
				t.Errorf("%d objects took %d requests", len(objects), e.puts())
			}
		}))
	}
}

// A successor's seal is in the slot whose request is late. The twin meets it, and
// the writer is fenced for certain; what is late lands on the seal.
func TestHedgeWhileFenced(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.hedging()
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, warm+1)), Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{}}})
		fs := e.several(a, "lost")
		b := e.open("b", 2, nil)
		e.outcomes(fs, "not")
		e.fenced(a.Err(), 2)
		if e.Faulty.Release(t.Context(), nil) != 1 {
			t.Error("nothing was late")
		}
		e.append(b, fmt.Sprint(warm))
		e.numbers(warm + 1)
	})
}

// The first request landed, and its answer hangs; before the twin arrives a
// successor has sealed the next slot. The twin is refused, by its equal.
func TestT05_HedgeOfACommittedSlotWhileFenced(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.hedging()
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, warm+1)), Fault: faultstore.Fault{Hang: true}})
		fs := e.several(a, fmt.Sprint(warm))
		b := e.open("b", 2, nil)
		if b.Recovered().Offset != warm+1 {
			t.Errorf("recovered %+v", b.Recovered())
		}
		e.outcomes(fs, "committed")
		e.outcomes(e.several(a, "lost"), "not")
		e.fenced(a.Err(), 2)
		e.append(b, fmt.Sprint(warm+1))
		e.numbers(warm + 2)
	})
}

// A writer that is aborted cancels both twins, and reports the outcome as unknown.
func TestHedgeGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.hedging()
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Times: -1, Prefix: layout.DataKey(at(1, warm+1)), Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{}}})
		fs := e.several(a, fmt.Sprint(warm))
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if e.puts() != 2 {
			t.Fatalf("%d requests are in flight", e.puts())
		}
		abandon(a)
		e.outcomes(fs, "unknown")
		e.Faulty.Release(t.Context(), nil)
		e.numbers(warm + 1) // so it was right not to say
	})
}

// A small object is hedged by default. A large one is not, nor one on a store that answers at
// once, nor any if the options say so.
func TestHedgeByDefault(t *testing.T) {
	for _, c := range []struct {
		name    string
		hedge   float64
		latency time.Duration
		size    int
		twice   bool
	}{
		{"small", 0, 10 * ms, 1, true},
		{"never", -1, 10 * ms, 1, false},
		{"as long as half of the latency at 100 MB/s", 0, 10 * ms, 500_000, false},
		{"not quite", 0, 10 * ms, 490_000, true},
		{"quick", 0, ms - 1, 1, false},
	} {
		t.Run(c.name, bubbled(func(t *testing.T, e *env) {
			latency := c.latency
			e.latency(&latency)
			w := e.open("a", 1, &writer.Options{Checkpoint: -1, NoCompress: true, Hedge: c.hedge})
			for range warm {
				e.append(w, "x")
			}
			for range 20 { // so many earn the bytes of one that is late
				e.append(w, strings.Repeat("x", c.size))
			}
			e.Faulty.ResetCounts()
			latency = time.Second
			f := e.async(w, strings.Repeat("x", c.size))
			time.Sleep(latency / 2)
			synctest.Wait()
			if got := e.puts() == 2; got != c.twice {
				t.Errorf("%d requests were sent", e.puts())
			}
			e.outcomes([]writer.Future{f}, "committed")
		}))
	}
}
