package delta

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// costs are what the tests of costs have measured, with one added file.
type costs struct {
	took, cpu time.Duration
	requests  int
	heap      uint64
}

// publishOne publishes a table with some active files to which one is added, by a publisher that
// begins with nothing.
func publishOne(t *testing.T, files int) costs {
	t.Helper()
	ctx := context.Background()
	mem := memstore.New(nil)
	st := faultstore.New(mem, nil)
	_, err := manifest.Init(ctx, mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	pw := parquet.NewGenericWriter[struct{ ID int64 }](&b)
	_, _ = pw.Write([]struct{ ID int64 }{{1}})
	_ = pw.Close()
	w, err := writer.Open(ctx, mem, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		for n > 0 {
			var e manifest.Edit
			for range min(n, 5000) {
				f, err := w.CreateFile(ctx, ".parquet", 0)
				if err == nil {
					_, err = f.Write(b.Bytes())
				}
				if err == nil {
					err = f.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				e.Add = append(e.Add, f.File())
			}
			n -= len(e.Add)
			if err := w.CommitFiles(ctx, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func() *Publisher {
		root, src, _ := Beside(st)
		p, err := Open(ctx, root, []Source{src}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	add(files)
	c, err := compactor.New(mem, &compactor.Options{Token: fence.NewToken(1)})
	if err == nil {
		_, err = c.Once(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := open()
	p.CheckpointEvery(100) // so that there is a checkpoint with all files
	if r, err := p.Publish(ctx); err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	add(1)
	runtime.GC()
	debug.FreeOSMemory()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	peak := make(chan uint64)
	stop := make(chan struct{})
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	n := st.Counts().Of("", "")
	q := open()
	cpu := processor(t)
	begun := time.Now()
	r, err := q.Publish(ctx)
	cost := costs{took: time.Since(begun), cpu: processor(t) - cpu}
	close(stop)
	// The collector may have freed what was in use before.
	if most := <-peak; most > before.HeapInuse {
		cost.heap = most - before.HeapInuse
	}
	if err != nil || r.Err() != nil || r.Files != files+1 {
		t.Fatal(r, err)
	}
	cost.requests = st.Counts().Of("", "") - n
	return cost
}

func processor(t *testing.T) time.Duration {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	var f [20]int64
	var s string
	rest := b[bytes.LastIndexByte(b, ')')+2:]
	_, _ = fmt.Sscan(string(rest), &s, &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8], &f[9], &f[10], &f[11])
	return time.Duration(f[10]+f[11]) * 10 * time.Millisecond
}

// attr states a number for the page that make bench-lake writes.
func attr(t *testing.T, key string, v float64) {
	t.Helper()
	t.Attr(key, strconv.FormatFloat(v, 'g', -1, 64))
}

var costFiles = flag.Int("files", 3000, "how many active files the large table of TestCost has")

// TestCost: a publisher that begins with nothing publishes one file more. What it costs does not
// grow with the files of the table, but for the bytes of one checkpoint.
func TestCost(t *testing.T) {
	small, large := publishOne(t, *costFiles/100), publishOne(t, *costFiles)
	attr(t, "seconds", large.took.Seconds())
	attr(t, "processor", large.cpu.Seconds())
	attr(t, "MiB", float64(large.heap)/(1<<20))
	attr(t, "requests", float64(large.requests))
	attr(t, "requests-of-small", float64(small.requests))
	t.Logf("%d files: %v, of that processor %v; %d MiB; %d requests, and %d with %d files", *costFiles, large.took, large.cpu, large.heap>>20, large.requests, small.requests, *costFiles/100)
	if mib := large.heap >> 20; mib > 256 {
		t.Errorf("%d MiB of heap with %d files, want at most 256", mib, *costFiles)
	}
	if 2*large.requests > 3*small.requests {
		t.Errorf("%d requests with %d files, %d with %d", large.requests, *costFiles, small.requests, *costFiles/100)
	}
}

// TestRequests counts what one commit costs a publisher that follows.
func TestRequests(t *testing.T) {
	ctx := t.Context()
	mem := memstore.New(nil)
	st := faultstore.New(mem, nil)
	if _, err := manifest.Init(ctx, mem, nil); err != nil {
		t.Fatal(err)
	}
	own := faultstore.New(mem, nil) // counts what the writer sends
	w, err := writer.Open(ctx, own, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close(ctx) }()
	root, src, _ := Beside(st)
	p, err := Open(ctx, root, []Source{src}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewWriter(ctx, w, &WriterOptions[struct{ ID int64 }]{})
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	var before, ownBefore faultstore.Counts
	for i := range rounds + 2 {
		if i == 2 {
			before, ownBefore = st.Counts(), own.Counts()
		}
		if err := d.Write(ctx, []struct{ ID int64 }{{int64(i)}}); err != nil {
			t.Fatal(err)
		}
		if err := d.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if r, err := p.Publish(ctx); err != nil || r.Err() != nil || r.Versions == 0 {
			t.Fatal(r, err)
		}
	}
	after := st.Counts()
	for prefix, what := range map[string]string{"file/0": "put-of-file", "data/": "put-of-edit"} {
		kind := faultstore.Put
		if prefix == "file/0" {
			kind = faultstore.Upload
		}
		n := float64(own.Counts().Of(kind, prefix)-ownBefore.Of(kind, prefix)) / rounds
		attr(t, what, n)
		if n != 1 {
			t.Errorf("the writer sends %.2f %s of %s for each commit, want 1", n, kind, prefix)
		}
	}
	for _, c := range []struct {
		what   string
		kind   faultstore.Kind
		prefix string
		most   float64
	}{
		{"for the source", faultstore.List, "manifest/", 1}, {"for the source", faultstore.Get, "manifest/", 0.5}, {"for the source", faultstore.Get, "data/", 2},
		{"for the source", faultstore.Put, "pin/", 0}, {"for the source", faultstore.Delete, "pin/", 0}, {"for each file", faultstore.Get, "file/0", 1},
		{"for all", faultstore.List, "file/_delta_log/", 1}, {"for all", faultstore.Get, "file/_delta_log/", 0}, {"for all", faultstore.Put, "file/_delta_log/", 1},
	} {
		n := float64(after.Of(c.kind, c.prefix)-before.Of(c.kind, c.prefix)) / rounds
		attr(t, fmt.Sprintf("%s-%s", c.kind, c.prefix), n)
		t.Logf("%s: %.2f %s %s", c.what, n, c.kind, c.prefix)
		if n > c.most {
			t.Errorf("%s: %.2f %s of %s, want at most %v", c.what, n, c.kind, c.prefix, c.most)
		}
	}
	if all := float64(after.Of("", "")-before.Of("", "")) / rounds; all > 6.5 { // the writer publishes a manifest now and then
		t.Errorf("%.2f requests for each commit, want 6", all)
	}
	// A round that finds nothing: a LIST and a GET for the source, and a GET for the table.
	before = after
	if r, err := p.Publish(ctx); err != nil || r.Versions != 0 {
		t.Fatal(r, err)
	}
	if n := st.Counts().Of("", "") - before.Of("", ""); n != 3 {
		t.Errorf("a round that finds nothing takes %d requests", n)
	}
}

// TestRequestsOfAHold counts the requests of a publisher that follows a log for hours: of each round in
// which the hold of the log moves, of those that find a newer manifest, and of those that list all pins.
func TestRequestsOfAHold(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(10*time.Minute), func(t *testing.T, l *logtest.Log) {
		w := l.Open(nil)
		defer l.Close(w)
		st := faultstore.New(l.Mem, &faultstore.Options{Clock: clock.Go()})
		root, src, _ := Beside(st)
		p, err := Open(t.Context(), root, []Source{src}, &Options{Clock: clock.Go(), Settle: logtest.Quick, Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		p.CheckpointEvery(200)                                                                      // checkpoints leave the retention, and what is before them is deleted
		d, err := NewWriter(t.Context(), w, &WriterOptions[struct{ ID int64 }]{Compression: Plain}) // the others have goroutines outside of bubbles
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		// The leader publishes a manifest each ten seconds: half of the rounds find one. After
		// an hour versions leave the retention.
		const each, warm, rounds, compacted = 6 * time.Second, 650, 600, 20
		all := map[string][]roundCost{}
		for i := range warm + rounds {
			if err := d.Write(t.Context(), []struct{ ID int64 }{{int64(i)}}); err != nil {
				t.Fatal(err)
			}
			if err := d.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i%compacted == 0 {
				l.Token++
				c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(l.Token), Settle: logtest.Quick, Clock: clock.Go(), NoCompress: true})
				if err == nil {
					_, err = c.Once(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, idle := range []bool{false, true} { // and then a round that finds nothing
				before := st.Counts()
				r, err := p.Publish(t.Context())
				if err != nil || r.Err() != nil || r.Sources[0].Published != uint64(i+1) || (r.Versions == 0) != idle {
					t.Fatal(r, err)
				}
				c := costOf(before, st.Counts())
				if kind := c.kind(idle); i >= warm {
					all[kind] = append(all[kind], c)
				}
			}
			time.Sleep(each)
		}
		for kind, c := range all {
			t.Logf("%d rounds, %s: on average %v", len(c), kind, mean(c))
		}
		// What each round of a kind may take: of the source LIST, GET, PUT, DELETE; of the table LIST, GET, PUT.
		const moves, cleans, news, sweeps = "the hold moves", "the log is cleaned", "a newer manifest", "all pins are listed"
		for kind, most := range map[string]roundCost{
			moves:  {"list-source": 1, "get-source": 2, "put-pin": 2, "delete-pin": 1, "list-table": 1, "get-table": 0, "put-table": 1, "delete-table": 0},
			news:   {"list-source": 1, "get-source": 3, "put-pin": 2, "delete-pin": 1, "list-table": 1, "get-table": 0, "put-table": 1, "delete-table": 0},
			cleans: {"list-source": 1, "get-source": 3, "put-pin": 2, "delete-pin": 1, "list-table": 1, "get-table": 2, "put-table": 1, "delete-table": 1},
			sweeps: {"list-source": 2, "get-source": 1 + holdsPerRetention + 1, // one for each pin of the table
				"put-pin": 0, "delete-pin": 0, "list-table": 0, "get-table": 1, "put-table": 0, "delete-table": 0},
		} {
			if len(all[kind]) == 0 {
				t.Errorf("there was no round in which %s", kind)
				continue
			}
			for what, n := range most {
				for _, c := range all[kind] {
					if c[what] > n {
						t.Errorf("%s: %v %s in one round, want at most %v", kind, c[what], what, n)
					}
				}
			}
		}
		if m := mean(all[moves]); m["put-pin"] != 2 || m["delete-pin"] == 0 {
			t.Errorf("pins are not taken or not released: %v", m)
		}
		for what, n := range mean(all[moves]) {
			attr(t, what, n)
		}
		attr(t, "get-newer", mean(all[news])["get-source"])
		attr(t, "list-sweep", mean(all[sweeps])["list-source"])
		attr(t, "get-clean", mean(all[cleans])["get-table"])
	})
}

// roundCost is how many requests of each kind a round has sent.
type roundCost map[string]float64

func costOf(before, after faultstore.Counts) roundCost {
	n := func(kind faultstore.Kind, prefixes ...string) (n float64) {
		for _, prefix := range prefixes {
			n += float64(after.Of(kind, prefix) - before.Of(kind, prefix))
		}
		return n
	}
	const table = "file/_delta_log/"
	return roundCost{
		"list-source": n(faultstore.List, "manifest/", "data/", "pin/"), "get-source": n(faultstore.Get, "manifest/", "data/", "pin/"),
		"get-manifest": n(faultstore.Get, "manifest/"), "list-pins": n(faultstore.List, "pin/"), "put-pin": n(faultstore.Put, "pin/"), "delete-pin": n(faultstore.Delete, "pin/"),
		"get-footer": n(faultstore.Get, "file/0"), "list-table": n(faultstore.List, table), "get-table": n(faultstore.Get, table), "put-table": n(faultstore.Put, table),
		"delete-table": n(faultstore.Delete, table),
	}
}

// kind tells what a round did besides what each does.
func (c roundCost) kind(idle bool) string {
	switch {
	case idle && c["list-pins"] > 0:
		return "all pins are listed"
	case idle:
		return "nothing"
	case c["delete-table"] > 0:
		return "the log is cleaned"
	case c["put-table"] > 1:
		return "a checkpoint"
	case c["get-manifest"] > 0:
		return "a newer manifest"
	case c["put-pin"] > 0:
		return "the hold moves"
	}
	return "a commit"
}

func mean(all []roundCost) roundCost {
	m := roundCost{}
	for _, c := range all {
		for what, n := range c {
			m[what] += n
		}
	}
	for what := range m { // now, so that the mean of whole numbers that are alike is exact
		m[what] /= float64(len(all))
	}
	return m
}

// TestTenPublishers: ten that follow the same log at once do not try in vain for long.
func TestTenPublishers(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(time.Minute), func(t *testing.T, l *logtest.Log) {
		w := l.Open(nil)
		st := faultstore.New(l.Mem, &faultstore.Options{Clock: clock.Go(), Rates: faultstore.Rates{MaxDelay: 56 * time.Millisecond}})
		ctx, cancel := context.WithCancel(t.Context())
		var versions atomic.Int64
		var lags []time.Duration
		var mu sync.Mutex
		var committed time.Time
		var edit uint64
		var rounds [10]int // of each publisher since the last commit, until it has seen it published
		var worst int
		var g sync.WaitGroup
		for i := range rounds {
			root, src, _ := Beside(st)
			p, err := Open(ctx, root, []Source{src}, &Options{Clock: clock.Go(), Settle: logtest.Quick, Hooks: Hooks{Published: func(r Report) {
				mu.Lock()
				defer mu.Unlock()
				versions.Add(int64(r.Versions))
				lags = append(lags, time.Since(committed))
			}, Round: func(r Round) {
				mu.Lock()
				defer mu.Unlock()
				if rounds[i] < 0 {
					return
				}
				rounds[i]++
				if worst = max(worst, rounds[i]); len(r.Report.Sources) > 0 && r.Report.Sources[0].Published >= edit {
					rounds[i] = -1
				}
			}}})
			if err != nil {
				t.Fatal(err)
			}
			g.Go(func() { _ = p.Run(ctx) })
		}
		s := newSim(t, 1, &simCounts{})
		const edits = 50
		for range edits {
			f, err := w.CreateFile(ctx, ".parquet", 0)
			if err == nil {
				_, err = f.Write(s.body)
			}
			if err == nil {
				err = f.Close()
			}
			if err == nil {
				err = w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f.File()}})
			}
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			committed = time.Now()
			edit++
			clear(rounds[:])
			mu.Unlock()
			time.Sleep(2 * time.Second)
		}
		cancel()
		g.Wait()
		l.Close(w)
		slices.Sort(lags)
		each := float64(st.Counts().Of(faultstore.Put, "file/_delta_log/")) / float64(versions.Load())
		attr(t, "tries", each)
		attr(t, "lag", lags[len(lags)/2].Seconds())
		attr(t, "rounds", float64(worst))
		t.Logf("%d edits, %d versions, %.2f tries each, at most %d rounds; lag p50 %v", edits, versions.Load(), each, worst, lags[len(lags)/2])
		if worst > 3 {
			t.Errorf("a publisher needed %d rounds until it saw a commit published, want at most 3", worst)
		}
		if versions.Load() < edits || each > 2 {
			t.Errorf("%d versions for %d edits, with %.2f tries each; want at most 2", versions.Load(), edits, each)
		}
	})
}
