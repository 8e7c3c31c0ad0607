package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// traffic is what clients do: so many each wait for their acknowledgement before they append
// again, after thinking for 0.2 ms on average. Or records come at random, so many a second.
type traffic struct {
	clients, rate int
	size          int  // of a record, in bytes
	burst         int  // so many records come at once, if it is not 0
	mixed         bool // one record in 20 has 256 KiB
}

func (l traffic) String() string {
	switch {
	case l.clients == 1:
		return fmt.Sprintf("a waiting client, %d B", l.size)
	case l.clients > 0:
		return fmt.Sprintf("%s waiting clients, %s B", result.Number(float64(l.clients)), result.Number(float64(l.size)))
	}
	s := fmt.Sprintf("%s records a second, %s B", result.Number(float64(l.rate)), result.Number(float64(l.size)))
	if l.burst > 0 {
		s += fmt.Sprintf(", in bursts of %d", l.burst)
	}
	if l.mixed {
		s += ", one in 20 of 256 KiB"
	}
	return s
}

// score is what a load saw.
type score struct {
	acks, p50, p99, puts, gets float64 // acknowledgements a second, milliseconds, requests a second
	took                       []time.Duration
}

// thinking is how long a client takes to append again, on average.
const thinking = 200 * time.Microsecond

// run loads an appender for a while, after a warming up.
func (l traffic) run(a appender, st *far, warm, long time.Duration) score {
	var mu sync.Mutex
	var took []time.Duration
	begin := time.Now().Add(warm)
	end := begin.Add(long)
	ack := func(start time.Time, then func()) func() {
		return func() {
			if now := time.Now(); !now.Before(begin) && now.Before(end) {
				mu.Lock()
				took = append(took, now.Sub(start))
				mu.Unlock()
			}
			then()
		}
	}
	record, large := payload(l.size), payload(256<<10)
	var all sync.WaitGroup
	for c := range l.clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for done := make(chan struct{}); time.Now().Before(end); <-done {
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(thinking)))
				a.append(record, ack(time.Now(), func() { done <- struct{}{} }))
			}
		})
	}
	if l.rate > 0 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, 1))
			for time.Now().Before(end) {
				burst := max(l.burst, 1)
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) * float64(burst) / float64(l.rate)))
				for range burst {
					next := record
					if l.mixed && rng.IntN(20) == 0 {
						next = large
					}
					a.append(next, ack(time.Now(), func() {}))
				}
			}
		})
	}
	time.Sleep(time.Until(begin))
	puts, gets := st.counts()
	time.Sleep(time.Until(end))
	puts2, gets2 := st.counts()
	all.Wait()
	a.close()
	per := func(n int) float64 { return float64(n) / long.Seconds() }
	ms := func(q float64) float64 { return float64(result.Quantile(took, q)) / 1e6 }
	return score{acks: per(len(took)), p50: ms(0.5), p99: ms(0.99), puts: per(puts2 - puts), gets: per(gets2 - gets), took: took}
}

// arena runs the arms of a comparison, each in virtual time.
type arena struct {
	t      *testing.T
	format manifest.Format
	spread spread
	long   time.Duration
}

func (a arena) run(l traffic, open func(*testing.T, *far) appender) (s score) {
	a.t.Helper()
	synctest.Test(a.t, func(t *testing.T) {
		st := newFar(a.spread)
		s = l.run(open(t, st), st, a.long/5, a.long)
	})
	return s
}

func (a arena) fenced(l traffic, opts writer.Options) score {
	opts.Checkpoint = -1
	opts.NoCompress = true // all records are the same, and the serial group commit does not compress
	return a.run(l, func(t *testing.T, st *far) appender { return newFenced(t, a.format, st, opts) })
}

// serial returns the score of the serial group commit with the best linger.
func (a arena) serial(l traffic) (best score) {
	for _, part := range []int{0, 32, 16} { // of the latency
		var linger time.Duration
		if part > 0 {
			linger = a.spread.p50 / time.Duration(part)
		}
		s := a.run(l, func(t *testing.T, st *far) appender { return newGroup(t, st, linger) })
		if best.took == nil || l.clients > 0 && s.acks > best.acks || l.clients == 0 && s.p50 < best.p50 {
			best = s
		}
	}
	return best
}

// spreads are how long requests take. The goals are for the first one.
var spreads = []spread{
	{name: "S3's tail", p50: 28 * time.Millisecond, p99: 120 * time.Millisecond},
	{name: "a light tail", p50: 28 * time.Millisecond, p99: 45 * time.Millisecond},
	{name: "28 ms each", p50: 28 * time.Millisecond, p99: 28 * time.Millisecond},
	{name: "2 ms each", p50: 2 * time.Millisecond, p99: 2 * time.Millisecond},
	{name: "100 ms each", p50: 100 * time.Millisecond, p99: 100 * time.Millisecond},
	{name: "S3's tail, and one in 1,000 takes 100 times as long", p50: 28 * time.Millisecond, p99: 120 * time.Millisecond, rare: 0.001},
	{name: "S3's tail, applied after 95 % of the time", p50: 28 * time.Millisecond, p99: 120 * time.Millisecond, applied: 0.95},
}

// compared is what is measured on the first spread. On the others only some are.
var compared = []traffic{
	{clients: 1, size: 100}, {clients: 16, size: 100}, {clients: 64, size: 100}, {clients: 256, size: 100}, {clients: 1000, size: 100},
	{clients: 1, size: 4 << 10}, {clients: 16, size: 4 << 10}, {clients: 64, size: 4 << 10}, {clients: 256, size: 4 << 10}, {clients: 1000, size: 4 << 10},
	{clients: 16, size: 64 << 10}, {clients: 16, size: 200 << 10}, {clients: 16, size: 300 << 10},
	{rate: 50, size: 100}, {rate: 400, size: 100}, {rate: 5000, size: 100},
	{rate: 50, size: 4 << 10}, {rate: 400, size: 4 << 10}, {rate: 5000, size: 4 << 10},
	{rate: 400, size: 100, burst: 100}, {rate: 5000, size: 100, burst: 100}, {rate: 5000, size: 4 << 10, burst: 100},
	{rate: 50, size: 100, mixed: true}, {rate: 400, size: 100, mixed: true},
}

// TestPacing compares the writer, with its default options, with a serial group commit.
func TestPacing(t *testing.T) {
	f, err := manifest.Init(t.Context(), memstore.New(nil), quickly) // outside the bubble, because its probe needs real time
	if err != nil {
		t.Fatal(err)
	}
	p := &pacing{t: t, report: &report{result.New("When the writer sends: beside a serial group commit with the best linger, in virtual time", "pacing"), t.Name()}}
	p.Text = text
	for i, s := range spreads {
		for _, l := range compared {
			// About 150,000 acknowledgements, but enough requests for a p99.
			long := min(max(time.Duration(150_000/float64(30*l.clients+l.rate)*float64(time.Second)), 20*time.Second), 10*time.Minute)
			if i == 0 && l.size > 100 && l.clients < 1000 {
				long = max(long, time.Minute)
			}
			long = time.Duration(long.Seconds() * float64(s.p50) / float64(28*time.Millisecond) * float64(time.Second)) // as many requests
			quick := l.clients == 64 || l.rate == 400
			large, odd := l.size > 100 && s.name != "28 ms each", l.burst > 0 || l.mixed
			switch {
			case *into == "" && (i > 0 || !quick || l.size > 100 || odd):
				continue
			case i > 0 && (large || odd || l.clients == 1 || l.clients == 256 && l.size == 100):
				continue
			case i > 0:
				long /= 2
			}
			start := time.Now()
			p.compare(arena{t, f, s, long}, l, i == 0 && !odd)
			took(s.name+", "+l.String(), start)
		}
	}
	p.protocols(f)
	if *into != "" {
		p.costs(f)
		p.tables(f)
	}
	p.figures()
	if *into == "" {
		for _, row := range p.Rows {
			if slack := 1.05; row.More && row.Value*slack < row.Goal || !row.More && row.Goal >= 0 && row.Value > row.Goal*slack {
				t.Errorf("%s: %s (%s)", row.Name, result.Number(row.Value), row.Note)
			}
		}
		return
	}
	if err := p.Write(*into); err != nil {
		t.Fatal(err)
	}
}

// text stands before the table.
const text = "In this model a PUT is applied at half of its time, and in the rows that say so at 95 % of it. Each byte takes as long as on a line of 90 MB/s, and objects in flight do not share a line. All records are the same, so nothing is compressed. Otherwise the options are the default ones.\n\n" +
	"Clients that append again at once share one object. Where each request takes 28 ms, that halves their PUTs: a writer without this rule makes as many acknowledgements. Where each takes 2 ms, it makes 1.02 to 1.07 of the serial one's, for 1.34 to 1.39 times its PUTs. There the rule gets more acknowledgements for fewer PUTs, but a longer p99: without it, the p99 is 0.74 to 0.78 of the serial one's.\n\n" +
	"How many objects a burst makes depends on the processors: on one that is slower, or busy, the writer takes the first records before the last ones have come. So `-check` does not compare the rows of bursts.\n\n" +
	"With S3's tail, every eighth object for which all clients wait is sent twice at once. With one in five instead, the acknowledgements were 1.09 to 1.14 of the serial one's, and the PUTs 1.34 to 1.40 of its: more than the goal.\n\n" +
	"Rows that begin with HTTP/1.1 or HTTP/2 have the S3 driver and the SDK's HTTP client over TLS, in virtual time too, before a server of net/http in memory. To open a connection takes 2 ms besides. All requests that arrive are counted, and paid. " +
	"Where connections are broken off, the server closes that of every hundredth request, and over HTTP/2 all other requests on it fail too. Every other such request is applied before, and lacks its answer. " +
	"Hedging stays on by default. On each of these routes it shortens the p50 or gives more acknowledgements, and the p99 is 0.70 to 0.83 times as long, for 1.24 to 1.49 times the dollars. " +
	"Over HTTP/1.1 the requests that lose cost their connections: up to 20 are opened a second. Over HTTP/2 they cost none. A connection that hangs and does not close was not measured: over HTTP/2 a second request shares it.\n\n" +
	"Clients whose records are 1.4 MB or more together have no goal for PUTs, as 1,000 clients of 4 KiB. Their 4 MB alone take the serial group commit 46 ms. The writer divides them among objects of about 1.7 MB, which are sent beside one another. So clients are acknowledged more often, for more PUTs. From objects of 256 KiB on it learns no latency: 16 clients of 300 KiB never share one."

// pacing collects the rows and figures.
type pacing struct {
	*report
	t                     *testing.T
	clients, acks, serial []float64
	open                  [3]score // of 400 records a second: serial, not hedged, as it is
}

// compare adds the rows of a comparison.
func (p *pacing) compare(a arena, l traffic, goals bool) {
	base := a.serial(l)
	plain, now := a.fenced(l, writer.Options{Hedge: -1}), a.fenced(l, writer.Options{})
	name := fmt.Sprintf("%s, %s: ", a.spread.name, l)
	note := func(unhedged float64) string { return "not hedged " + result.Number(unhedged) }
	goal := func(v float64) float64 {
		if goals {
			return v
		}
		return -1
	}
	if l.clients > 0 {
		puts := goal(1.3)
		if l.clients*l.size >= 1_400_000 {
			puts = -1 // the page says why
		}
		p.add(
			Row{Name: name + "acknowledgements a second, to the serial one's", Value: now.acks / base.acks, Goal: max(goal(1), 0), More: true, Ratio: true, Note: note(plain.acks/base.acks) + fmt.Sprintf("; %.0f to %.0f", now.acks, base.acks)},
			Row{Name: name + "p99, to the serial one's", Value: now.p99 / base.p99, Goal: -1, Ratio: true, Note: note(plain.p99 / base.p99)},
			Row{Name: name + "PUTs a second, to the serial one's", Value: now.puts / base.puts, Goal: puts, Ratio: true, Note: fmt.Sprintf("%.1f to %.1f, and %.1f GETs", now.puts, base.puts, now.gets)},
		)
	} else {
		ratio := l.burst == 0 // the page says why
		p.add(
			Row{Name: name + "p50, to the serial one's", Value: now.p50 / base.p50, Goal: goal(0.85), Ratio: ratio, Note: note(plain.p50/base.p50) + fmt.Sprintf("; %.1f to %.1f ms", now.p50, base.p50)},
			Row{Name: name + "p99, to the serial one's", Value: now.p99 / base.p99, Goal: goal(0.75), Ratio: ratio, Note: note(plain.p99/base.p99) + fmt.Sprintf("; %.1f to %.1f ms", now.p99, base.p99)},
			Row{Name: name + "PUTs a second", Value: now.puts, Goal: goal(80), Ratio: ratio, Note: fmt.Sprintf("the serial one %.1f; and %.1f GETs", base.puts, now.gets)},
		)
	}
	if goals && l.clients > 0 && l.size == 100 {
		p.clients, p.acks, p.serial = append(p.clients, float64(l.clients)), append(p.acks, now.acks), append(p.serial, base.acks)
	}
	if goals && l.rate == 400 && l.size == 100 {
		p.open = [3]score{base, plain, now}
	}
}

// tables measures clients that each write a small file and commit it, again and again.
func (p *pacing) tables(f manifest.Format) {
	for _, c := range []struct {
		clients   int
		p50, rate float64 // goals: milliseconds, commits a second
	}{{1, 65, 0}, {16, 75, 220}} {
		long := 10 * time.Minute / time.Duration(c.clients)
		took, st := p.commits(f, c.clients, long, writer.Options{})
		plain, _ := p.commits(f, c.clients, long, writer.Options{Hedge: -1})
		name := fmt.Sprintf("S3's tail, %s committing a file each: ", map[int]string{1: "a client", 16: "16 clients"}[c.clients])
		n := float64(len(took))
		p.add(
			Row{Name: name + "p50 in milliseconds, of file and commit", Value: float64(result.Quantile(took, 0.5)) / 1e6, Goal: c.p50, Ratio: true, Note: fmt.Sprintf("not hedged %.0f; p99 %.0f", float64(result.Quantile(plain, 0.5))/1e6, float64(result.Quantile(took, 0.99))/1e6)},
			Row{Name: name + "commits a second", Value: n / long.Seconds(), Goal: c.rate, More: true, Ratio: true, Note: fmt.Sprintf("not hedged %.0f; each %.2f objects and %.2f files", float64(len(plain))/long.Seconds(), float64(st.puts)/n, float64(st.uploads)/n)},
		)
	}
}

// commits returns how long each commit took, in so many clients, and the store with its counts.
func (p *pacing) commits(f manifest.Format, clients int, long time.Duration, opts writer.Options) (took []time.Duration, st *far) {
	synctest.Test(p.t, func(t *testing.T) {
		st = newFar(spreads[0])
		opts.Checkpoint = -1
		a := newFenced(t, f, st, opts)
		commit := func() {
			file, err := a.w.CreateFile(t.Context(), "", 0)
			if err == nil {
				_, err = file.Write(payload(100))
			}
			if err == nil {
				err = file.Close()
			}
			if err == nil {
				err = a.w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{file.File()}})
			}
			if err != nil {
				t.Error(err)
			}
		}
		for range 50 {
			commit() // the writer learns
		}
		st.puts, st.uploads = 0, 0
		var mu sync.Mutex
		var all sync.WaitGroup
		end := time.Now().Add(long)
		for range clients {
			all.Go(func() {
				for time.Now().Before(end) {
					start := time.Now()
					commit()
					mu.Lock()
					took = append(took, time.Since(start))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		a.close()
	})
	return took, st
}

// costs counts the requests of a writer and says what they cost in a month at S3's prices.
func (p *pacing) costs(f manifest.Format) {
	for _, rate := range []int{1, 5, 10, 50, 400, 5000} {
		for _, c := range []struct {
			name string
			opts writer.Options
		}{
			{"default", writer.Options{}},
			{"Hedge: -1", writer.Options{Hedge: -1}},
			{"Linger: 100 ms", writer.Options{Linger: 100 * time.Millisecond}},
			{"Frugal", writer.Options{RequestsPerSecond: writer.Frugal}},
			{"RequestsPerSecond: 1", writer.Options{RequestsPerSecond: 1}},
		} {
			var st *far
			var s score
			long := min(max(time.Duration(150_000/rate)*time.Second, 20*time.Second), 30*time.Minute)
			synctest.Test(p.t, func(t *testing.T) {
				st = newFar(spreads[0])
				s = traffic{rate: rate, size: 100}.run(newFenced(t, f, st, c.opts), st, 0, long)
			})
			per := func(n int) float64 { return float64(n) / long.Seconds() }
			p.add(Row{
				Name: fmt.Sprintf("%s records a second at random, S3's tail, %s: dollars a month for requests", result.Number(float64(rate)), c.name), Goal: -1, Ratio: true,
				Value: dollars(per(st.puts+st.others+st.lists), per(st.gets)),
				Note:  fmt.Sprintf("a second: %.2f objects, %.2f manifests, %.2f LISTs, %.2f GETs", per(st.puts), per(st.others), per(st.lists), per(st.gets)),
			})
			if c.name == "Frugal" {
				name := fmt.Sprintf("%s records a second at random, S3's tail, Frugal: ", result.Number(float64(rate)))
				p.add(Row{Name: name + "dollars a month for PUTs of records", Goal: 40, Ratio: true, Value: dollars(per(st.puts), 0)},
					Row{Name: name + "milliseconds, p50", Goal: 230, Ratio: true, Value: s.p50},
					Row{Name: name + "milliseconds, p99", Goal: 600, Ratio: true, Value: s.p99})
			}
		}
	}
}

func (p *pacing) figures() {
	closed := result.Figure{Title: "Clients that wait for their acknowledgement, S3's tail", File: "pacing.svg", X: "clients", Y: "acknowledgements a second and client", LogX: true}
	line := func(acks []float64) (points plotter.XYs) {
		for i, n := range p.clients {
			points = append(points, plotter.XY{X: n, Y: acks[i] / n})
			closed.Ticks = append(closed.Ticks, plot.Tick{Value: n, Label: result.Number(n)})
		}
		return points
	}
	closed.Line("serial group commit", line(p.serial))
	closed.Line("fenced", line(p.acks))
	open := result.Figure{Title: "400 records a second at random, S3's tail", File: "pacing-open.svg", X: "milliseconds to acknowledgement", Y: "share"}
	for i, name := range []string{"serial group commit", "fenced, not hedged", "fenced"} {
		open.Line(name, result.Distribution(p.open[i].took))
	}
	p.Figures = append(p.Figures, closed, open)
}
