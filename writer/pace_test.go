package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// An append lingers for others although requests are free, and no longer than it
// was told to.
func TestLinger(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Linger: 50 * time.Millisecond, Checkpoint: -1})
		e.Faulty.ResetCounts()
		start := time.Now()
		first := e.async(w, "0")
		time.Sleep(30 * time.Millisecond)
		second := e.async(w, "1")
		for _, f := range []writer.Future{first, second} {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("the first append took %v", took)
		}
		if e.puts() != 1 {
			t.Errorf("two appends were %d objects", e.puts())
		}
		// The next one lingers anew.
		start = time.Now()
		e.append(w, "2")
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("the third append took %v", took)
		}
		e.numbers(3)
	})
}

// A linger ends early when somebody waits for its end: a full object, one who has
// no room, Flush, Close.
func TestLingerEndsEarly(t *testing.T) {
	for name, end := range map[string]func(*env, *writer.Writer) error{
		"full": func(e *env, w *writer.Writer) error {
			_, err := w.AppendAsync(e.Context(), recs("12345678"))
			return err
		},
		"no room": func(e *env, w *writer.Writer) error {
			_, err := w.AppendAsync(e.Context(), recs("123456789"))
			return err
		},
		"flush": func(e *env, w *writer.Writer) error { return w.Flush(e.Context()) },
		"close": func(e *env, w *writer.Writer) error { return w.Close(e.Context()) },
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			w := e.open("a", 1, &writer.Options{Linger: time.Hour, BatchBytes: 20, Checkpoint: -1, NoCompress: true})
			f := e.async(w, "1234567890") // 11 bytes with its length
			start := time.Now()
			synctest.Wait()
			if got := outcome(f); got != "pending" {
				t.Fatalf("it did not linger: %s", got)
			}
			if err := end(e, w); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("it lingered on for %v", took)
			}
		}))
	}
}

// An edit lingers no more than it lets others linger: its size does not count.
func TestEditDoesNotLinger(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Linger: time.Hour, Checkpoint: -1})
		f := e.async(w, "0")
		start := time.Now()
		e.commit(w, manifest.Edit{Properties: map[string]string{"a": "1"}})
		if took := time.Since(start); took != 0 || outcome(f) != "committed" {
			t.Errorf("the edit took %v, and the append before it is %s", took, outcome(f))
		}
	})
}

// A writer that is stopped does not wait for the end of a linger.
func TestLingerIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		until, cancel := context.WithCancel(t.Context())
		w := e.open("a", 1, &writer.Options{Linger: time.Hour})
		w.Until(until)
		f := e.async(w, "0")
		synctest.Wait()
		cancel()
		e.outcomes([]writer.Future{f}, "not")
	})
}

// RequestsPerSecond bounds the objects on average; after a pause a second's worth
// goes at once. What comes meanwhile shares the next object.
func TestRequestsPerSecond(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		burst int
		every time.Duration
	}{{10, 10, 100 * time.Millisecond}, {1, 1, time.Second}, {0.1, 1, 10 * time.Second}} {
		t.Run(fmt.Sprint(c.rate), bubbled(func(t *testing.T, e *env) {
			w := e.open("a", 1, &writer.Options{RequestsPerSecond: c.rate, Checkpoint: -1, Concurrency: 64})
			time.Sleep(time.Hour)
			start := time.Now()
			e.Faulty.ResetCounts()
			var at []time.Duration
			for i := range c.burst + 3 {
				e.append(w, fmt.Sprint(i))
				at = append(at, time.Since(start))
			}
			want := slices.Repeat([]time.Duration{0}, c.burst)
			for i := range 3 {
				want = append(want, time.Duration(i+1)*c.every)
			}
			if !slices.Equal(at, want) {
				t.Errorf("acknowledged after %v, want %v", at, want)
			}
			// Three share the next.
			e.Faulty.ResetCounts()
			e.several(w, fmt.Sprint(c.burst+3), fmt.Sprint(c.burst+4), fmt.Sprint(c.burst+5))
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e.puts() != 1 || time.Since(start) != 4*c.every {
				t.Errorf("%d objects, after %v", e.puts(), time.Since(start))
			}
			// Close may have little time: what waits is one object at most.
			e.several(w, fmt.Sprint(c.burst+6), fmt.Sprint(c.burst+7))
			if err := w.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e.puts() != 2 || time.Since(start) != 4*c.every {
				t.Errorf("%d objects, closed after %v", e.puts(), time.Since(start))
			}
			e.numbers(c.burst + 8)
		}))
	}
}

// Without a linger and a rate of requests no append takes a timer, where requests take no time.
func TestNoTimerWithoutPace(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		c := &timers{Clock: clock.Go()}
		opts := *options(nil)
		opts.Clock, opts.Checkpoint, opts.Settle = c, -1, &store.SettleOptions{Clock: clock.Go()}
		w := e.open("a", 1, &opts)
		e.append(w, "awake") // a timer tells when it rests again
		synctest.Wait()
		before := c.n.Load()
		for range 10 {
			e.append(w, "x")
		}
		if n := c.n.Load() - before; n != 0 {
			t.Errorf("10 appends took %d timers", n)
		}
	})
}

// latency makes the requests of client a for slots take as long as d says at the time. A test that
// changes d while requests are made calls set.
func (e *env) latency(d *time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks = append(e.hooks, func(op faultstore.Op) (f faultstore.Fault) {
		if op.Client == "a" && op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.DataPrefix) {
			f.Delay = time.Duration(atomic.LoadInt64((*int64)(d)))
		}
		return f
	})
}

func set(d *time.Duration, to time.Duration) { atomic.StoreInt64((*int64)(d), int64(to)) }

// paced opens a writer that has learned that a request takes 32 ms. The clock stands at a
// moment when nothing is in flight or awaited.
func (e *env) paced(opts *writer.Options) (w *writer.Writer, latency *time.Duration) {
	e.Helper()
	latency = new(time.Duration)
	*latency = 32 * time.Millisecond
	e.latency(latency)
	w = e.open("a", 1, opts)
	e.thinking(w, 20, "x")
	time.Sleep(time.Second)
	e.Faulty.ResetCounts()
	return w, latency
}

// thinking appends a record some times, as a client does that thinks before it appends again.
func (e *env) thinking(w *writer.Writer, times int, record string) {
	e.Helper()
	for range times {
		e.append(w, record)
		time.Sleep(10 * ms)
	}
}

// sentAfter wants so many objects to have been sent after a time.
func (e *env) sentAfter(start time.Time, after time.Duration, want int) {
	e.Helper()
	time.Sleep(time.Until(start.Add(after)))
	synctest.Wait()
	if got := e.puts(); got != want {
		e.Errorf("after %v %d objects were sent, want %d", after, got, want)
	}
}

const ms = time.Millisecond

// Beside an object in flight the next one waits for its part of the latency, and takes all that comes
// meanwhile.
//
// tuning:pace-gap. Without this wait: each of 400 clients appends one record per second, and a request
// takes 32 ms; nearly each record gets an object and a request of its own; each is acknowledged only
// after the slowest of a dozen requests in flight.
func TestPace(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1})
		start := time.Now()
		for i := range 11 { // one each 4 ms
			e.async(w, fmt.Sprint(i))
			synctest.Wait()
			time.Sleep(4 * ms)
		}
		// At 0, 25.6 and 51.2 ms.
		e.sentAfter(start, 51*ms, 2)
	})
}

// A lone client never waits for the pace, also if an answer comes early.
//
// tuning:pace-idle. Without this check: a request usually takes 30 ms; one request of a lone client is
// answered unusually soon, after 1 ms, and the client appends again at once; the writer holds this
// append back for another millisecond, although nothing is in flight, and no other record comes.
func TestPaceOfALoneClient(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, latency := e.paced(&writer.Options{Checkpoint: -1})
		for _, *latency = range []time.Duration{32 * ms, 10 * ms, 40 * ms, ms, 32 * ms} {
			start := time.Now()
			e.append(w, "x")
			if took := time.Since(start); took != *latency {
				t.Errorf("an append took %v, its request %v", took, *latency)
			}
		}
	})
}

// Clients that are acknowledged together share the next object too, also if they do not all come back
// in the same moment.
//
// tuning:pace-gather. Without this wait: 64 clients are acknowledged together; the first one to append
// again gets an object of its own; the other 63 wait for the next object, which is acknowledged only
// after the first. Flush ends the wait, because then its caller has nothing more to append.
func TestPaceGathers(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1})
		start := time.Now()
		fs := e.several(w, "0", "1", "2", "3") // 1 to 3 share an object
		<-fs[3].Done()
		e.Faulty.ResetCounts()
		acked := time.Now()
		for i, f := range fs[1:] {
			if _, err := f.Wait(e.Context()); err != nil {
				t.Fatal(err)
			}
			fs[i] = e.async(w, fmt.Sprint(4+i))
			synctest.Wait()
			time.Sleep(500 * time.Microsecond)
		}
		<-fs[2].Done()
		// The last of the three came after 1 ms, so it was not awaited for 2.
		if took := time.Since(acked); e.puts() != 1 || took != 33*ms {
			t.Errorf("three clients took %d objects and %v", e.puts(), took)
		}
		if took := time.Since(start); took != 32*ms*4/5+(32+33)*ms {
			t.Errorf("all took %v", took)
		}
	})
}

// Two groups of clients that append again at once share one object after a while, although they began
// apart. Clients that think before they append again do not.
//
// tuning:pace-together. Without this rule: 16 clients append, and each request takes 30 ms; 4 of them
// come 1 ms after the others, and their object is sent 24 ms after the first; each group waits for the
// other again and again, and each client is acknowledged every 48 ms, instead of every 30 ms.
func TestPaceTogether(t *testing.T) {
	for _, think := range []time.Duration{0, 10 * ms} {
		t.Run(think.String(), bubbled(func(t *testing.T, e *env) {
			w, _ := e.paced(&writer.Options{Checkpoint: -1})
			var all sync.WaitGroup
			end := time.Now().Add(10 * time.Second)
			rounds := 0
			for i := range 8 {
				all.Go(func() {
					for time.Sleep(time.Duration(i/4) * ms); time.Now().Before(end); time.Sleep(think) {
						e.append(w, "x")
						if i == 0 {
							rounds++
						}
					}
				})
			}
			all.Wait()
			if objects := e.puts(); (objects < rounds+20) != (think == 0) {
				t.Errorf("in %d rounds of all clients %d objects were sent", rounds, objects)
			}
		}))
	}
}

// Half of the clients come back at once, and the others one after the other. They share one object, unless
// the last of them takes more than a quarter of the latency.
//
// tuning:pace-stream. Without this rule: 1,000 clients wait for one object, which takes 32 ms; the
// processor is busy, so it takes 3 ms until the last client has appended again; the next object is sent
// after 2 ms, without the records of 300 clients, and these clients wait for two objects.
func TestPaceOfAStream(t *testing.T) {
	for _, c := range []struct {
		apart time.Duration
		share bool
	}{{7 * ms / 10, true}, {97 * ms / 100, false}} {
		t.Run(c.apart.String(), bubbled(func(t *testing.T, e *env) {
			w, _ := e.paced(&writer.Options{Checkpoint: -1})
			var all sync.WaitGroup
			end := time.Now().Add(10 * time.Second)
			var appends atomic.Int64
			for i := range 20 {
				all.Go(func() {
					for time.Now().Before(end) {
						e.append(w, "x")
						// At first all come at once. So they share an object, and the writer learns that they come again.
						if appends.Add(1) > 400 {
							time.Sleep(time.Duration(max(i-9, 0)) * c.apart)
						}
					}
				})
			}
			all.Wait()
			if objects := e.puts(); (objects < int(appends.Load())/20+12) != c.share {
				t.Errorf("%d objects were sent for %d appends of 20 clients", objects, appends.Load())
			}
		}))
	}
}

// A client that does not come back is awaited for a sixteenth of the latency; if somebody
// flushes, for no time at all.
func TestPaceGathersNoLonger(t *testing.T) {
	for _, c := range []struct {
		flush bool
		wait  time.Duration
	}{{false, 2 * ms}, {true, 0}} {
		t.Run(fmt.Sprint(c.flush), bubbled(func(t *testing.T, e *env) {
			w, _ := e.paced(&writer.Options{Checkpoint: -1})
			first := e.async(w, "0")
			synctest.Wait()
			fs := e.several(w, "1", "2", "3")
			<-first.Done()
			for _, f := range fs {
				<-f.Done()
			}
			start := time.Now()
			f := e.async(w, "4")
			if c.flush {
				if err := w.Flush(e.Context()); err != nil {
					t.Fatal(err)
				}
			}
			<-f.Done()
			if took := time.Since(start); took != 32*ms+c.wait {
				t.Errorf("it took %v", took)
			}
		}))
	}
}

// A program that appends many records in a row does not wait for its part of the latency because the
// first one was sent alone.
func TestPaceOfABurst(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1})
		start := time.Now()
		e.async(w, "0")
		synctest.Wait()
		for range 999 {
			e.async(w, "x")
		}
		e.sentAfter(start, 2*ms, 2)
		if err := w.Flush(e.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 34*ms {
			t.Errorf("1,000 appends took %v", took)
		}
	})
}

// An object whose bytes take half of the latency at 100 MB/s does not wait, and neither does a
// full one.
func TestPaceOfBulk(t *testing.T) {
	for _, c := range []struct {
		name    string
		latency time.Duration
		opts    writer.Options
		record  int
		want    int
	}{
		{"bulk", 32 * ms, writer.Options{}, 1_600_000, 6},
		{"not quite", 32 * ms, writer.Options{}, 1_590_000, 3}, // the first alone, then two together
		{"bulk of a store that is near", 4 * ms, writer.Options{}, 256 << 10, 6},
		{"less than bulk of a store that is near", 4 * ms, writer.Options{}, 250_000, 3},
		{"full", 32 * ms, writer.Options{BatchBytes: 100}, 100, 6},
		{"no room", 32 * ms, writer.Options{BatchBytes: 100}, 60, 5}, // the last one has room
	} {
		t.Run(c.name, bubbled(func(t *testing.T, e *env) {
			c.opts.Checkpoint, c.opts.Concurrency = -1, 8
			w, latency := e.paced(&c.opts)
			*latency = c.latency
			e.thinking(w, 200, "x") // the writer learns
			time.Sleep(time.Second)
			e.Faulty.ResetCounts()
			start := time.Now()
			for range 6 {
				e.async(w, strings.Repeat("x", c.record))
				synctest.Wait()
			}
			e.sentAfter(start, 0, c.want)
		}))
	}
}

// Clients whose records do not fit into one object are acknowledged as often as where they do: the last
// of them do not wait for the object of the others first.
//
// tuning:pace-rest. Where most clients append again at once, an object waits for the one in flight, so
// that all share one (pace-together). Without this rule: 11 of 12 clients' records fill an
// object, and a request takes 32 ms; the others come a moment later, and their object is sent only when
// the full one is answered; they are acknowledged every 47 ms, instead of every 39 ms.
func TestPaceOfARest(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1, BatchBytes: 1000, NoCompress: true})
		const clients, rounds = 12, 50
		record := strings.Repeat("x", 89) // 11 of 12 fill an object
		var all sync.WaitGroup
		start := time.Now()
		for i := range clients {
			all.Go(func() {
				for range rounds {
					time.Sleep(time.Duration(i) * 10 * time.Microsecond)
					e.append(w, record)
				}
			})
		}
		all.Wait()
		if each := time.Since(start) / rounds; each > 40*ms {
			t.Errorf("an acknowledgement took %v on average, a request 32 ms", each)
		}
	})
}

// gap returns how long an append beside one in flight waits before it is sent, in whole
// milliseconds: 4/5 of the latency.
func (e *env) gap(w *writer.Writer) time.Duration {
	e.Helper()
	time.Sleep(time.Hour)
	e.Faulty.ResetCounts()
	e.several(w, "x", "x")
	for start := time.Now(); ; time.Sleep(ms) {
		if synctest.Wait(); e.puts() == 2 {
			return time.Since(start)
		}
	}
}

// What teaches the writer to wait: neither a
// rare slow request, nor large objects, nor requests that were sent again. Large objects teach it to
// wait less, if they take less on average.
//
// tuning:pace-stale. A large object takes at least as long as a small one. Without this rule: a request
// takes 120 ms, and then the store recovers, and a request takes 10 ms; since then all objects have 300
// KiB or more, so the writer learns nothing from them; an object that waits beside one in flight waits
// for 96 ms instead of 8 ms, for hours.
//
// tuning:pace-outlier. Without this limit: a request usually takes 32 ms; one request, which is not
// hedged, takes 20 s; the mean rises to 1.3 s; until 40 more samples have come, an object that waits
// beside one in flight waits for 100 ms instead of 27 ms.
//
// tuning:pace-small. Without this check: the writer appends 4 MiB at a time for a while, and each
// object takes 2 s on a slow line; the mean is 2 s; the small objects after them wait for up to 100 ms
// beside one in flight, although a small request takes 30 ms.
//
// tuning:pace-sample. Without this check: a request takes 30 ms, but for a minute the answers are lost,
// and each object is sent again after a pause; the mean rises to 200 ms; the objects after them wait
// for up to 100 ms beside one in flight.
func TestPaceLearns(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(e *env, w *writer.Writer, latency *time.Duration)
		gap  time.Duration
	}{
		{"nothing", func(*env, *writer.Writer, *time.Duration) {}, 26 * ms},
		{"one slow request", func(e *env, w *writer.Writer, latency *time.Duration) {
			*latency = 10 * time.Second
			e.thinking(w, 1, "x")
		}, 28 * ms},
		{"large objects", func(e *env, w *writer.Writer, latency *time.Duration) {
			*latency = 2 * time.Second
			e.thinking(w, 20, strings.Repeat("x", 256<<10))
		}, 26 * ms},
		{"large objects that take as long on average", func(e *env, w *writer.Writer, latency *time.Duration) {
			for i := range 200 {
				set(latency, []time.Duration{10 * ms, 54 * ms}[i%2])
				e.thinking(w, 1, strings.Repeat("x", 256<<10))
			}
		}, 26 * ms},
		{"large objects on a store that has become quick", func(e *env, w *writer.Writer, latency *time.Duration) {
			*latency = 7 * ms
			e.thinking(w, 200, strings.Repeat("x", 256<<10))
		}, 6 * ms},
		{"lost answers", func(e *env, w *writer.Writer, latency *time.Duration) {
			*latency = 0 // else the rules would not apply
			for range 20 {
				e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataPrefix, Fault: faultstore.Fault{Delay: 200 * ms, Err: errors.New("reset")}})
				e.thinking(w, 1, "x")
			}
		}, 26 * ms},
		{"a store that has become slow", func(e *env, w *writer.Writer, latency *time.Duration) {
			*latency = 100 * ms
			e.thinking(w, 200, "x")
		}, 80 * ms},
	} {
		t.Run(c.name, bubbled(func(t *testing.T, e *env) {
			w, latency := e.paced(&writer.Options{Checkpoint: -1, NoCompress: true})
			c.then(e, w, latency)
			*latency = time.Minute // of what is in flight
			if got := e.gap(w); got != c.gap {
				t.Errorf("the second object waited %v, want %v", got, c.gap)
			}
		}))
	}
}

// Of a very slow store the writer does not learn to wait for seconds.
//
// tuning:pace-ceiling. While an object is in flight, the next one waits for a part of the usual
// latency, to gather more records. Without this limit: each request takes 20 s, and one object is in
// flight; an append that comes now is not even sent for 16 s.
func TestPaceOfAVerySlowStore(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, latency := e.paced(&writer.Options{Checkpoint: -1})
		*latency = 20 * time.Second
		e.thinking(w, 200, "x")
		if got := e.gap(w); got != 100*ms {
			t.Errorf("the second object waited %v", got)
		}
	})
}

// A pace that was learned does not keep Close or the end of the writer waiting.
func TestPaceAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1})
		start := time.Now()
		e.several(w, "0", "1")
		if err := w.Close(e.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 32*ms {
			t.Errorf("Close took %v", took)
		}
	})
}
