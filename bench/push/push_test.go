package push

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

var (
	results = result.DirFlag()
	page    = result.New("Readers that are told", "push")
)

func TestMain(m *testing.M) {
	flag.Parse()
	page.Text = "An agent and its readers on one machine, over TLS on loopback, all in one process; a store in memory. A delay is from the moment at which the writer acknowledges a record to that at which a reader's loop has it."
	page.Made = "go test -C bench ./push -results results"
	code := m.Run()
	if code == 0 && *results != "" {
		if err := page.Write(*results); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// size is full for the page, and small to see only that the measure works.
func size(full, small int) int {
	if *results != "" {
		return full
	}
	return small
}

func add(t *testing.T, rows ...result.Row) {
	t.Helper()
	for _, r := range rows {
		t.Logf("%-60s %10.3f  %s", r.Name, r.Value, r.Note)
	}
	page.Add(t.Name(), rows...)
}

// world is a log, and an agent that leads it and tells readers.
type world struct {
	*testing.T
	st       store.Store
	requests atomic.Int64
	epoch    uint64
	client   *connect.Client[agentpb.AppendRequest, agentpb.AppendResponse]

	mu           sync.Mutex
	acknowledged []time.Time // by record
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t}
	w.st = store.Hooked(memstore.New(nil), store.Hooks{Answered: func(store.Answer) { w.requests.Add(1) }}, nil)
	_, err := manifest.Init(t.Context(), w.st, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := push.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const url = "mem://log"
	a, err := agent.New(&agent.Options{
		Open: func(context.Context, string) (store.Store, error) { return w.st, nil }, Logs: []string{url},
		Announce: push.Announcement{Tail: l.Addr().String(), Cert: id.Cert},
		Leader:   leader.Options{Validity: 2 * time.Minute},
		Writer: writer.Options{Hooks: writer.Hooks{Acknowledged: func(a writer.Acknowledgement) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for range a.Records {
				w.acknowledged = append(w.acknowledged, time.Now())
			}
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: a.Readers(), ReadHeaderTimeout: time.Minute}
	go func() { _ = h.Serve(tls.NewListener(l, id.Config)) }()
	ctx, cancel := context.WithCancel(context.Background())
	led := make(chan error, 1)
	go func() { led <- a.Lead(ctx, url) }()
	t.Cleanup(func() {
		cancel()
		if err := <-led; err != nil {
			t.Error(err)
		}
		_ = h.Close()
	})
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	w.client = connect.NewClient[agentpb.AppendRequest, agentpb.AppendResponse](s.Client(), s.URL+"/"+agent.Service+"/Append")
	return w
}

func (w *world) append() uint64 {
	for {
		a, err := w.client.CallUnary(w.Context(), connect.NewRequest(&agentpb.AppendRequest{Records: [][]byte{make([]byte, 100)}}))
		if err == nil {
			if w.epoch == 0 {
				w.epoch = a.Msg.GetEpoch()
			}
			if a.Msg.GetEpoch() != w.epoch {
				w.Fatal("the agent has lost the lead: this machine is too busy to measure")
			}
			return a.Msg.GetFirst()
		}
		if connect.CodeOf(err) != connect.CodeFailedPrecondition { // it does not lead yet
			w.Fatal(err)
		}
	}
}

// follow starts a reader that calls each with each record, and when that was.
func (w *world) follow(told bool, each func(offset uint64, at time.Time)) {
	o := &reader.Options{}
	if told {
		o.Push = push.Source(w.st, nil)
	}
	r, err := reader.Open(w.Context(), w.st, o)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		for rec, err := range r.Tail(ctx, 0) {
			if err != nil {
				if ctx.Err() == nil {
					w.Error(err)
				}
				return
			}
			each(rec.Offset, time.Now())
		}
	}()
}

// until waits until at least so many records have been read in all.
type until struct {
	mu   sync.Mutex
	more sync.Cond
	n    int
}

func newUntil() *until {
	u := &until{}
	u.more.L = &u.mu
	return u
}

func (u *until) add() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
	u.more.Broadcast()
}

func (u *until) wait(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.n < n {
		u.more.Wait()
	}
}

// told appends until all readers get records without a request of theirs.
func (w *world) told(read *until, readers int) {
	begin := time.Now()
	read.wait(readers * int(w.append()+1))
	for {
		// While nothing comes, readers that are not told yet seldom look, and have time to connect.
		time.Sleep(3 * time.Second)
		before := w.requests.Load()
		for range 3 {
			read.wait(readers * int(w.append()+1))
		}
		if w.requests.Load()-before <= 4 { // a heartbeat may be among them
			return
		}
		if time.Since(begin) > 5*time.Minute {
			w.Fatal("the readers are not told")
		}
	}
}

func TestDelay(t *testing.T) {
	n := size(300, 10)
	delays := func(told bool) (took []time.Duration) {
		w := newWorld(t)
		at := make([]time.Time, 0, n)
		var mu sync.Mutex
		read := newUntil()
		w.follow(told, func(_ uint64, seen time.Time) {
			mu.Lock()
			at = append(at, seen)
			mu.Unlock()
			read.add()
		})
		var first int
		if told {
			w.told(read, 1)
		} else {
			read.wait(int(w.append() + 1))
		}
		mu.Lock()
		first = len(at)
		mu.Unlock()
		for i := range n {
			time.Sleep(time.Duration(100+i*37%300) * time.Millisecond)
			read.wait(int(w.append() + 1))
		}
		mu.Lock()
		defer mu.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := first; i < len(at); i++ {
			took = append(took, at[i].Sub(w.acknowledged[i]))
		}
		return took
	}
	ms := func(took []time.Duration, q float64) float64 { return float64(result.Quantile(took, q)) / 1e6 }
	told, polled := delays(true), delays(false)
	add(t, result.Row{Name: "a reader that is told: ms after the acknowledgement, p50", Value: ms(told, .5), Goal: 2, Note: fmt.Sprintf("a reader that polls: %s", result.Number(ms(polled, .5)))},
		result.Row{Name: "a reader that is told: ms after the acknowledgement, p99", Value: ms(told, .99), Goal: 10, Note: fmt.Sprintf("a reader that polls: %s", result.Number(ms(polled, .99)))},
		result.Row{Name: "the delay of a reader that is told, beside one that polls, p50", Value: ms(told, .5) / ms(polled, .5), Goal: 1, Ratio: true})
}

func TestManyReaders(t *testing.T) {
	records := size(200, 10)
	cost := func(readers int) (requests float64, took []time.Duration) {
		w := newWorld(t)
		read := newUntil()
		var mu sync.Mutex
		last := time.Time{}
		for range readers {
			w.follow(true, func(_ uint64, at time.Time) {
				mu.Lock()
				if at.After(last) {
					last = at
				}
				mu.Unlock()
				read.add()
			})
		}
		w.told(read, readers)
		before := w.requests.Load()
		for range records {
			time.Sleep(50 * time.Millisecond)
			offset := w.append()
			read.wait(readers * int(offset+1))
			w.mu.Lock()
			mu.Lock()
			took = append(took, last.Sub(w.acknowledged[offset]))
			mu.Unlock()
			w.mu.Unlock()
		}
		return float64(w.requests.Load() - before), took
	}
	many := size(1000, 20)
	one, _ := cost(1)
	all, took := cost(many)
	add(t, result.Row{
		Name: fmt.Sprintf("%d readers that are told: requests to the store, the leader's among them, beside one reader's", many), Value: all / one, Goal: 2, Ratio: true,
		Note: fmt.Sprintf("%s while %d records were appended; the last reader had a record after %s ms, p50", result.Number(all), records, result.Number(float64(result.Quantile(took, .5))/1e6)),
	})
}
