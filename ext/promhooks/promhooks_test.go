package promhooks_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

func newMetrics(t *testing.T, opts *promhooks.Options) (*promhooks.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := promhooks.New(reg, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// value returns the value of a metric with these labels: of a histogram its count.
func value(t *testing.T, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && has(m, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return math.NaN()
}

func has(m *dto.Metric, values []string) bool {
	n := 0
	for _, l := range m.GetLabel() {
		for _, v := range values {
			if l.GetValue() == v {
				n++
			}
		}
	}
	return n == len(values)
}

func want(t *testing.T, reg prometheus.Gatherer, v float64, name string, labels ...string) {
	t.Helper()
	if got := value(t, reg, name, labels...); got != v {
		t.Errorf("%s%v is %v, want %v", name, labels, got, v)
	}
}

// A term is seen from its win to its end, and the time that is left runs down meanwhile.
func TestLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, &promhooks.Options{Clock: clock.Go()})
		mem := memstore.New(nil)
		faulty := faultstore.New(mem, &faultstore.Options{Clock: clock.Go()})
		e, err := leader.New(faulty, "lock", &leader.Options{Clock: clock.Go(), Hooks: m.Leader("jobs", leader.Hooks{}), NoPrune: true})
		if err != nil {
			t.Fatal(err)
		}
		want(t, reg, 0, "fencepost_leader_leads", "jobs")
		want(t, reg, 0, "fencepost_leader_remaining_seconds", "jobs")
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want(t, reg, 1, "fencepost_leader_leads", "jobs")
		want(t, reg, 1, "fencepost_leader_epoch", "jobs")
		want(t, reg, 1, "fencepost_leader_elections_total", "jobs")
		if left := value(t, reg, "fencepost_leader_remaining_seconds", "jobs"); left < 13 {
			t.Errorf("%v s are left at the win", left)
		}
		time.Sleep(13 * time.Second)
		want(t, reg, 2, "fencepost_leader_heartbeat_seconds", "jobs")
		if left, own := value(t, reg, "fencepost_leader_remaining_seconds", "jobs"), term.Remaining().Seconds(); math.Abs(left-own) > 0.001 || own == 0 {
			t.Errorf("%v s are left, the term says %v", left, own)
		}
		faulty.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true}}))
		<-term.Context().Done()
		synctest.Wait()
		want(t, reg, 0, "fencepost_leader_leads", "jobs")
		want(t, reg, 0, "fencepost_leader_remaining_seconds", "jobs")
		want(t, reg, 1, "fencepost_leader_ends_total", "jobs", "expired")
		want(t, reg, 0, "fencepost_leader_ends_total", "jobs", "resigned")
		if n := value(t, reg, "fencepost_leader_heartbeats_failed_total", "jobs"); n < 1 {
			t.Errorf("%v heartbeats failed", n)
		}
		faulty.SetHook(nil)
		_ = term.Resign(t.Context())
	})
}

// An intruder opens a later epoch of a log that is led. The writer of the work is counted as fenced, also
// if the work asks for no outcome, and the term as resigned: Run gives it up.
func TestFencedWritersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, &promhooks.Options{Clock: clock.Go()})
		st := memstore.New(&memstore.Options{Clock: clock.Go()})
		opts := &fencepost.Options{
			Leader: &leader.Options{Clock: clock.Go(), Hooks: m.Leader("log", leader.Hooks{})},
			Writer: &writer.Options{Clock: clock.Go(), Hooks: m.Writer(writer.Hooks{})},
		}
		calls := 0
		err := fencepost.Run(t.Context(), st, opts, func(ctx context.Context, s *fencepost.Session) error {
			if calls++; calls > 1 {
				want(t, reg, 0, "fencepost_writer_ends_total", "closed")
				want(t, reg, 1, "fencepost_writer_ends_total", "fenced")
				return nil
			}
			intruder, err := writer.Open(ctx, st, fence.NewToken(s.Epoch()+1), &writer.Options{Clock: clock.Go()})
			if err != nil {
				return err
			}
			defer intruder.Close(context.WithoutCancel(ctx))
			_, err = s.AppendAsync(ctx, [][]byte{[]byte("x")})
			return err
		})
		if err != nil || calls != 2 {
			t.Errorf("%v after %d calls", err, calls)
		}
		want(t, reg, 1, "fencepost_writer_ends_total", "closed")
		want(t, reg, 1, "fencepost_writer_ends_total", "fenced")
		want(t, reg, 0, "fencepost_writer_ends_total", "error")
		want(t, reg, 2, "fencepost_leader_ends_total", "log", "resigned")
		m.Writer(writer.Hooks{}).Ended(writer.Ending{Err: store.ErrDenied})
		want(t, reg, 1, "fencepost_writer_ends_total", "error")
	})
}

// A heartbeat that is told after the end of its term leaves the time that is left at 0. The next term counts.
func TestLateHeartbeat(t *testing.T) {
	m, reg := newMetrics(t, nil)
	h := m.Leader("log", leader.Hooks{})
	h.Elected(leader.Election{Epoch: 7, Remaining: time.Hour})
	h.Ended(leader.End{Epoch: 7, Cause: &leader.TermError{}})
	h.Heartbeat(leader.Heartbeat{Epoch: 7, Remaining: time.Hour})
	want(t, reg, 0, "fencepost_leader_remaining_seconds", "log")
	h.Elected(leader.Election{Epoch: 9, Remaining: time.Minute})
	h.Heartbeat(leader.Heartbeat{Epoch: 9, Remaining: time.Hour})
	if left := value(t, reg, "fencepost_leader_remaining_seconds", "log"); left < 3500 {
		t.Errorf("%v s are left", left)
	}
}

// A reader that never could read lags since its hooks were made.
func TestReaderThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, &promhooks.Options{Clock: clock.Go()})
		time.Sleep(time.Hour)
		want(t, reg, 0, "fencepost_reader_lag_seconds")
		m.Reader(reader.Hooks{})
		want(t, reg, 0, "fencepost_reader_lag_seconds")
		time.Sleep(10 * time.Minute)
		want(t, reg, 600, "fencepost_reader_lag_seconds")
		m.Reader(reader.Hooks{}).Tail(reader.Tail{})
		want(t, reg, 0, "fencepost_reader_lag_seconds")
		time.Sleep(time.Minute)
		m.Reader(reader.Hooks{})
		want(t, reg, 60, "fencepost_reader_lag_seconds")
	})
}

// The lag is 0 at the tail, and grows while the reader cannot read.
func TestReaderLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, &promhooks.Options{Clock: clock.Go()})
		h := m.Reader(reader.Hooks{})
		want(t, reg, 0, "fencepost_reader_lag_seconds")
		h.Delivered(reader.Delivery{Records: 3, Bytes: 30, Next: 3, Time: time.Now().Add(-time.Minute)})
		want(t, reg, 60, "fencepost_reader_lag_seconds")
		h.Tail(reader.Tail{Offset: 3})
		want(t, reg, 0, "fencepost_reader_lag_seconds")
		time.Sleep(5 * time.Second)
		want(t, reg, 5, "fencepost_reader_lag_seconds")
		want(t, reg, 3, "fencepost_reader_offset")
	})
}

// The shares of a group, and the work on its partitions.
func TestGroup(t *testing.T) {
	m, reg := newMetrics(t, nil)
	h := m.Group(group.Hooks{})
	h.Assigned(group.Assigned{Number: 4, Partitions: 12, Owned: 5, Members: 3})
	for p := range 3 {
		h.Opened(group.Opening{Partition: p, Waited: time.Second})
	}
	h.Closed(group.Closing{Partition: 0, Cause: &group.EndError{Kind: group.ErrMoved}})
	h.Closed(group.Closing{Partition: 1, Err: errors.New("work")})
	want(t, reg, 5, "fencepost_group_owned_partitions")
	want(t, reg, 1, "fencepost_group_open_partitions")
	want(t, reg, 1, "fencepost_group_closed_total", "moved")
	want(t, reg, 1, "fencepost_group_closed_total", "error")
	h.Heartbeat(group.Heartbeat{Remaining: time.Hour, Err: errors.New("lost")})
	if left := value(t, reg, "fencepost_group_remaining_seconds"); left < 3500 {
		t.Errorf("%v s are left", left)
	}
	h.Ended(group.End{})
	want(t, reg, 0, "fencepost_group_remaining_seconds")
	want(t, reg, 0, "fencepost_group_owned_partitions")
	want(t, reg, 1, "fencepost_group_heartbeats_failed_total")
}

// Requests are counted by their outcomes and have their price.
func TestStore(t *testing.T) {
	m, reg := newMetrics(t, &promhooks.Options{Prices: &promhooks.Prices{Put: 5, Get: 0.4, List: 5}})
	mem := memstore.New(nil)
	lost := faultstore.New(mem, &faultstore.Options{Hook: faultstore.Script(faultstore.Rule{Prefix: "lost", Fault: faultstore.Fault{Drop: true}})})
	st := m.Store(lost)
	ctx := t.Context()
	_, _ = st.Put(ctx, "a", []byte("1"), &store.PutOptions{If: store.IfAbsent()})
	_, _ = st.Put(ctx, "a", []byte("2"), &store.PutOptions{If: store.IfAbsent()})
	_, _ = st.Put(ctx, "lost", []byte("2"), nil)
	_, _, _ = store.Read(ctx, st, "a", &store.ReadOptions{Limit: 10})
	_, _ = st.Get(ctx, "b", nil)
	for range st.List(ctx, "", nil) {
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = st.Put(ended, "slow", []byte("3"), nil) // as the slower copy of a hedged write
	for outcome, n := range map[string]float64{"ok": 1, "refused": 1, "unknown": 1, "canceled": 1} {
		want(t, reg, n, "fencepost_store_request_seconds", "put", outcome)
	}
	want(t, reg, 1, "fencepost_store_request_seconds", "get", "ok")
	want(t, reg, 1, "fencepost_store_request_seconds", "get", "not_found")
	want(t, reg, 4, "fencepost_store_sent_bytes_total", "put")
	want(t, reg, 1, "fencepost_store_received_bytes_total", "get")
	want(t, reg, 0.02, "fencepost_store_dollars_total", "put")
	want(t, reg, 0.005, "fencepost_store_dollars_total", "list")
}

// A compactor's passes count what they did once.
func TestCompactor(t *testing.T) {
	m, reg := newMetrics(t, nil)
	h := m.Compactor(compactor.Hooks{})
	h.Folded(compactor.Fold{Objects: 3, Records: 30, Bytes: 300})
	h.Passed(compactor.Pass{Report: compactor.Report{Folded: 3, Merged: 2, Pruned: map[string]int{"data": 7}, Floor: fence.Position{Epoch: 1, Seq: 4}, FloorOffset: 30}})
	h.Passed(compactor.Pass{Err: errors.New("store")})
	want(t, reg, 3, "fencepost_compactor_folded_objects_total")
	want(t, reg, 7, "fencepost_compactor_pruned_objects_total", "data")
	want(t, reg, 30, "fencepost_compactor_floor_offset")
	want(t, reg, 1, "fencepost_compactor_pass_seconds", "error")
}

// A pass that ends because the compactor is told to end is no error, whatever cause its context has.
func TestCompactorIsToldToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics(t, &promhooks.Options{Clock: clock.Go()})
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		err := fencepost.Run(t.Context(), mem, &fencepost.Options{Leader: &leader.Options{Clock: clock.Go()}, Writer: &writer.Options{Clock: clock.Go()}}, func(ctx context.Context, s *fencepost.Session) error {
			_, err := s.Append(ctx, [][]byte{[]byte("x")})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		faulty := faultstore.New(mem, &faultstore.Options{Clock: clock.Go()})
		faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if strings.HasPrefix(op.Key, "segment/") {
				return faultstore.Fault{Hold: make(chan struct{})}
			}
			return faultstore.Fault{}
		})
		passed := make(chan error, 10)
		c, err := compactor.New(faulty, &compactor.Options{MinObjects: 1, Clock: clock.Go(), Hooks: m.Compactor(compactor.Hooks{Passed: func(p compactor.Pass) { passed <- p.Err }})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second)
		cancel(errors.New("a signal"))
		<-ended
		if err := <-passed; err == nil {
			t.Error("the pass was not cut off")
		}
		want(t, reg, 0, "fencepost_compactor_pass_seconds", "error")
	})
}

// The hooks that the caller has already are called too.
func TestNextHooksAreCalled(t *testing.T) {
	m, reg := newMetrics(t, nil)
	n := 0
	w := m.Writer(writer.Hooks{
		Acknowledged: func(writer.Acknowledgement) { n++ }, Opened: func(writer.Opening) { n++ },
		Checkpoint: func(writer.Checkpoint) { n++ }, Progress: func(writer.Progress) { n++ }, Ended: func(writer.Ending) { n++ },
	})
	w.Acknowledged(writer.Acknowledgement{})
	w.Opened(writer.Opening{})
	w.Checkpoint(writer.Checkpoint{})
	w.Progress(writer.Progress{})
	w.Ended(writer.Ending{Err: fmt.Errorf("%w: %w", writer.ErrClosed, &fence.FencedError{Role: "compactor"})})
	want(t, reg, 1, "fencepost_writer_ends_total", "closed")
	l := m.Leader("log", leader.Hooks{
		Elected: func(leader.Election) { n++ }, Ended: func(leader.End) { n++ },
		Heartbeat: func(leader.Heartbeat) { n++ }, Leader: func(leader.Record) { n++ },
	})
	l.Elected(leader.Election{})
	l.Ended(leader.End{Cause: &leader.TermError{}})
	l.Heartbeat(leader.Heartbeat{})
	l.Leader(leader.Record{})
	r := m.Reader(reader.Hooks{Delivered: func(reader.Delivery) { n++ }, Tail: func(reader.Tail) { n++ }})
	r.Delivered(reader.Delivery{})
	r.Tail(reader.Tail{})
	c := m.Compactor(compactor.Hooks{Folded: func(compactor.Fold) { n++ }, Passed: func(compactor.Pass) { n++ }, Progress: func(compactor.Report) { n++ }})
	c.Folded(compactor.Fold{})
	c.Passed(compactor.Pass{})
	c.Progress(compactor.Report{})
	g := m.Group(group.Hooks{
		Opened: func(group.Opening) { n++ }, Closed: func(group.Closing) { n++ }, Assigned: func(group.Assigned) { n++ },
		Heartbeat: func(group.Heartbeat) { n++ }, Parked: func(group.Parking) { n++ }, Ended: func(group.End) { n++ },
	})
	g.Opened(group.Opening{})
	g.Closed(group.Closing{})
	g.Assigned(group.Assigned{})
	g.Heartbeat(group.Heartbeat{})
	g.Parked(group.Parking{})
	g.Ended(group.End{})
	if n != 20 {
		t.Errorf("%d of 20 hooks were called", n)
	}
}

// What an append calls allocates nothing.
func TestAppendsAllocateNothing(t *testing.T) {
	m, _ := newMetrics(t, nil)
	h := m.Writer(writer.Hooks{})
	if n := testing.AllocsPerRun(1000, func() {
		h.Acknowledged(writer.Acknowledgement{First: 7, Records: 3, Bytes: 100, Payload: 200, Took: time.Millisecond, Answered: time.Millisecond})
	}); n != 0 {
		t.Errorf("an acknowledgement allocates %v times", n)
	}
	beat := m.Leader("log", leader.Hooks{})
	if n := testing.AllocsPerRun(1000, func() { beat.Heartbeat(leader.Heartbeat{Remaining: time.Second}) }); n != 0 {
		t.Errorf("a heartbeat allocates %v times", n)
	}
	put := func(st store.Store) float64 {
		body := []byte("body")
		return testing.AllocsPerRun(1000, func() { _, _ = st.Put(context.Background(), "k", body, nil) })
	}
	if with, without := put(m.Store(memstore.New(nil))), put(memstore.New(nil)); with > without {
		t.Errorf("a put allocates %v times, without metrics %v", with, without)
	}
}

func BenchmarkAcknowledged(b *testing.B) {
	m, err := promhooks.New(prometheus.NewRegistry(), nil)
	if err != nil {
		b.Fatal(err)
	}
	h := m.Writer(writer.Hooks{})
	for b.Loop() {
		h.Acknowledged(writer.Acknowledgement{Records: 3, Bytes: 100, Took: time.Millisecond, Answered: time.Millisecond})
	}
}

// Two logs share a registry if a label tells them apart. Without one nothing is registered.
func TestTwoLogs(t *testing.T) {
	reg := prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		if _, err := promhooks.New(prometheus.WrapRegistererWith(prometheus.Labels{"log": name}, reg), nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := promhooks.New(prometheus.WrapRegistererWith(prometheus.Labels{"log": "a"}, reg), nil)
	if err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("twice: %v", err)
	}
	if n, err := testutil.GatherAndCount(reg, "fencepost_writer_records_total"); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestOptions(t *testing.T) {
	bad := &promhooks.Options{Prices: &promhooks.Prices{Put: -1, Get: math.NaN()}}
	if _, err := promhooks.New(prometheus.NewRegistry(), bad); !errors.Is(err, promhooks.ErrOptions) || strings.Count(fmt.Sprint(err), "Prices.") != 2 {
		t.Errorf("%v", err)
	}
	if _, err := promhooks.New(nil, nil); !errors.Is(err, promhooks.ErrOptions) {
		t.Errorf("without a Registerer: %v", err)
	}
}
