package outside_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// watching gives a hub that runs in a bubble, and counts its requests.
func watching(t *testing.T, perMinute int, st store.Store, f func(h *outside.Hub, count *atomic.Int64)) {
	t.Helper()
	var count atomic.Int64
	counted := store.Hooked(st, store.Hooks{Answered: func(a store.Answer) {
		count.Add(1)
		if a.Op != "get" && a.Op != "list" {
			t.Errorf("a watcher sends a %s", a.Op)
		}
	}}, clock.Go())
	h := outside.New([]outside.Target{{URL: "mem://x", Store: counted}}, &outside.Options{PerMinute: perMinute, Clock: clock.Go()})
	defer running(t, h)()
	synctest.Wait()
	f(h, &count)
}

// running makes a hub watch. The function that it returns ends that.
func running(t *testing.T, h *outside.Hub) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestManyTargets: however many share the budget, each gets its turn, and none takes the wait for a
// store that does not answer.
func TestManyTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets []outside.Target
		for i := range 60 {
			l := logtest.New(t, logtest.Format(), nil)
			targets = append(targets, outside.Target{URL: fmt.Sprintf("mem://%d", i), Store: l.Mem})
		}
		h := outside.New(targets, &outside.Options{Clock: clock.Go()})
		defer running(t, h)()
		left := len(targets)
		for range 240 {
			time.Sleep(time.Minute)
			all, _ := h.States()
			left = len(targets)
			for _, s := range all {
				if s.Err != "" {
					t.Fatalf("%s: %s", s.URL, s.Err)
				}
				if s.Log != nil {
					left--
				}
			}
			if left == 0 {
				return
			}
		}
		t.Errorf("%d were not read in four hours", left)
	})
}

func state(h *outside.Hub) outside.State {
	synctest.Wait()
	all, _ := h.States()
	return all[0]
}

// left is what a log is known to have after its floor.
func left(l *outside.Log) survey.Unfolded {
	if l == nil || l.Unfolded == nil {
		return survey.Unfolded{}
	}
	return *l.Unfolded
}

type node struct {
	*leader.Term
	w *writer.Writer
}

func lead(t *testing.T, st store.Store, name string) node {
	t.Helper()
	e, err := leader.New(st, layout.LockPrefix, &leader.Options{Identity: name, Clock: clock.Go(), NoPrune: true})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), st, term.Token(), &writer.Options{Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	w.Until(term.Context())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = w.Close(ctx)
		_ = term.Resign(ctx)
	})
	return node{term, w}
}

func (n node) append(t *testing.T, times int) {
	t.Helper()
	for range times {
		if _, err := n.w.Append(t.Context(), [][]byte{[]byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
}

// A failover is seen: two terms, the seal between them, the tail, and what is not folded.
func TestFailover(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			client := l.Faulty.Client("a")
			a := lead(t, client, "ann")
			a.append(t, 5)
			time.Sleep(2 * time.Minute)
			s := state(h)
			if s.Err != "" || s.Kind != "log" || len(s.Log.Terms) != 1 || s.Log.Terms[0].Holder != "ann" || !s.Log.Terms[0].Leads {
				t.Fatalf("%+v %+v", s, s.Log)
			}
			if l := s.Log; l.Tail != logtest.At(1, 6) || l.End != 5 || left(l).Objects != 6 || left(l).More || l.LastAt.IsZero() || len(l.Manifests) == 0 || l.Manifests[0].By != "writer" {
				t.Errorf("%+v", l)
			}
			client.Crash()
			b := lead(t, l.Mem, "bob")
			b.append(t, 2)
			time.Sleep(2 * time.Minute)
			v := state(h).Log
			if len(v.Terms) != 2 || v.Terms[0].Holder != "bob" || !v.Terms[0].Leads || v.Terms[1].Holder != "ann" || v.Terms[1].State != "expired" {
				t.Errorf("terms %+v", v.Terms)
			}
			if gap := v.Terms[0].From.Sub(v.Terms[1].To); gap <= 0 || gap > time.Minute {
				t.Errorf("a gap of %v", gap)
			}
			// The seals of epochs 0 and 1, five objects, and two.
			if v.Tail != logtest.At(2, 3) || left(v).Objects != 9 || v.End != 7 || len(v.Seals) != 2 || v.Seals[1].Position != logtest.At(1, 6) {
				t.Errorf("tail %v, %d unfolded, %d records, seals %+v", v.Tail, left(v).Objects, v.End, v.Seals)
			}
			c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(1), Clock: clock.Go()})
			if err == nil {
				_, err = c.Once(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if v := state(h).Log; left(v).Objects != 0 || v.FloorOffset != 7 || v.State.Seals != 2 || !v.Seals[1].Folded || v.Segments != 1 {
				t.Errorf("folded: %+v", v)
			}
			_ = b.w.Close(t.Context())
			_ = b.Resign(t.Context())
			time.Sleep(time.Minute)
			if v := state(h).Log; v.Terms[0].Leads || v.Terms[0].State != "expired" {
				t.Errorf("resigned: %+v", v.Terms[0])
			}
		})
	})
}

// A leader that has crashed is seen although nobody follows.
func TestLapsed(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			client := l.Faulty.Client("a")
			lead(t, client, "ann")
			time.Sleep(time.Minute)
			client.Crash()
			time.Sleep(time.Minute)
			if v := state(h).Log; v.Terms[0].State != "lapsed" {
				t.Errorf("%+v", v.Terms[0])
			}
		})
	})
}

// Where there is a lock and no log: who leads, who led, who has crashed, and that a log was made.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		campaign := func(name string) *leader.Term {
			e, err := leader.New(mem, layout.LockPrefix, &leader.Options{Identity: name, Clock: clock.Go()})
			if err != nil {
				t.Fatal(err)
			}
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return term
		}
		first := campaign("ann")
		time.Sleep(time.Minute)
		watching(t, 12, mem, func(h *outside.Hub, count *atomic.Int64) {
			time.Sleep(time.Minute)
			s := state(h)
			if s.Kind != "lock" || s.Err != "" || s.Log != nil || !s.Complete() || len(s.Lock.Terms) != 1 || s.Lock.Terms[0].Holder != "ann" || !s.Lock.Terms[0].Leads {
				t.Fatalf("%+v %+v", s, s.Lock)
			}
			if left := s.Lock.Terms[0].Until.Sub(s.Now); left > 15*time.Second || left < -time.Minute {
				t.Errorf("the lease ends in %v", left)
			}
			_ = first.Resign(t.Context())
			second := campaign("bob")
			time.Sleep(2 * time.Minute)
			if all := state(h).Lock.Terms; len(all) != 2 || all[0].Holder != "bob" || !all[0].Leads || all[1].Holder != "ann" || all[1].State != "expired" {
				t.Errorf("%+v", all)
			}
			count.Store(0)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := count.Load(); n > 65 {
				t.Errorf("%d requests in ten minutes", n)
			}
			_ = second.Resign(t.Context())
			time.Sleep(2 * time.Minute)
			if all := state(h).Lock.Terms; all[0].Leads {
				t.Errorf("%+v", all)
			}
			fixture.Put(t, mem, layout.FormatKey, document.Sum(layout.FormatKey, []byte(fixture.JSON(t, logtest.Format()))))
			time.Sleep(2 * time.Minute)
			if s := state(h); s.Kind != "log" || s.Lock != nil || s.Log == nil || len(s.Log.Terms) != 2 {
				t.Errorf("%+v", s)
			}
		})
	})
}

// TestEnd: records count when they are appended, and not only when the leader notes them.
func TestEnd(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		w := l.Open(&writer.Options{Checkpoint: -1})
		for range 108 {
			l.Append(w, "record")
		}
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			if s := state(h).Log; s == nil || s.End != 108 || s.Unfolded == nil || s.Unfolded.Objects < 108 || s.NotedOffset == 108 {
				t.Errorf("%+v", s)
			}
		})
		l.Close(w)
	})
}

// What the Delta table beside a log has of it, how far it is behind, and that the log was taken out.
func TestPublished(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		n := lead(t, l.Mem, "ann")
		commit := func() {
			t.Helper()
			f, err := n.w.CreateFile(t.Context(), ".parquet", 0)
			if err == nil {
				rows := parquet.NewGenericWriter[struct{ ID int64 }](f)
				if _, err = rows.Write([]struct{ ID int64 }{{1}}); err == nil {
					err = errors.Join(rows.Close(), f.Close())
				}
			}
			if err == nil {
				err = n.w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
			}
			if err != nil {
				t.Fatal(err)
			}
			c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(1), Clock: clock.Go()})
			if err == nil {
				_, err = c.Once(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		root, source, err := delta.Beside(l.Mem)
		if err != nil {
			t.Fatal(err)
		}
		p, err := delta.Open(t.Context(), root, []delta.Source{source}, &delta.Options{Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		publish := func() int64 {
			t.Helper()
			r, err := p.Publish(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return r.Version
		}
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			seen := func() *outside.Log { time.Sleep(5 * time.Minute); return state(h).Log }
			if v := seen(); v.Published != nil || v.Edits != 0 {
				t.Errorf("%+v", v)
			}
			commit()
			version := publish()
			if v := seen(); v.Published == nil || v.Published.Version != version || v.Published.Edits != 1 || v.Published.At.IsZero() || v.Edits != 1 {
				t.Errorf("%+v %+v", v, v.Published)
			}
			commit()
			commit()
			if v := seen(); v.Edits != 3 || v.Published.Edits != 1 {
				t.Errorf("%+v %+v", v, v.Published)
			}
			for range 101 { // past a checkpoint
				commit()
				version = publish()
			}
			if v := seen(); v.Published.Version != version || v.Published.Edits != 104 {
				t.Errorf("%+v %+v", v, v.Published)
			}
			// One that begins now begins at the checkpoint.
			watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
				time.Sleep(3 * time.Minute)
				if v := state(h).Log; v.Published == nil || v.Published.Version != version || v.Published.Edits != 104 {
					t.Errorf("%+v %+v", v, v.Published)
				}
			})
			if _, err := p.Unpublish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v := seen(); v.Published == nil || !v.Published.Gone {
				t.Errorf("%+v %+v", v, v.Published)
			}
		})
	})
}

// The requests are bounded however busy and however old the log is.
func TestBudgetOfABusyLog(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		for n := range 60 { // past leaders
			e := lead(t, l.Mem, fmt.Sprint("node ", n))
			_ = e.w.Close(t.Context())
			_ = e.Resign(t.Context())
		}
		busy := lead(t, l.Mem, "busy")
		r, err := reader.Open(t.Context(), l.Mem, &reader.Options{Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			if _, err := r.Pin(t.Context(), fmt.Sprint("backup ", n), 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		watching(t, 12, l.Mem, func(h *outside.Hub, count *atomic.Int64) {
			count.Store(0)
			for minute := range 30 {
				before := count.Load()
				busy.append(t, 50)
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := count.Load() - before; n > 12 {
					t.Errorf("%d requests in minute %d", n, minute)
				}
			}
			if count.Load() > 12*30 {
				t.Errorf("%d requests in half an hour", count.Load())
			}
			v := state(h).Log
			known := 0
			for _, term := range v.Terms {
				if term.State != "" {
					known++
				}
			}
			if len(v.Terms) != 61 || known < 20 || len(v.Pins) != 20 {
				t.Errorf("%d terms, %d of them known; %d pins", len(v.Terms), known, len(v.Pins))
			}
		})
	})
}

// A store that does not answer is told, and so is its return.
func TestStoreIsAway(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		var away atomic.Bool
		away.Store(true)
		gate := &gated{Store: l.Mem, away: &away}
		watching(t, 60, gate, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Minute)
			if s := state(h); s.Err == "" || s.Log != nil {
				t.Errorf("%+v", s)
			}
			away.Store(false)
			time.Sleep(2 * time.Minute)
			s := state(h)
			if s.Err != "" || s.Log == nil || s.Now.Sub(s.Asked) > 20*time.Second {
				t.Errorf("%+v", s)
			}
			away.Store(true)
			time.Sleep(2 * time.Minute)
			if s := state(h); s.Err == "" || s.Log == nil || s.Now.Sub(s.Asked) < time.Minute {
				t.Errorf("%+v", s)
			}
		})
	})
}

type gated struct {
	store.Store
	away *atomic.Bool
}

func (g *gated) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if g.away.Load() {
		return nil, &store.Error{Op: "get", Key: key, Err: errors.New("connection refused")}
	}
	return g.Store.Get(ctx, key, opts)
}

func (g *gated) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if g.away.Load() {
		return func(yield func(store.Info, error) bool) {
			yield(store.Info{}, &store.Error{Op: "list", Key: prefix, Err: errors.New("connection refused")})
		}
	}
	return g.Store.List(ctx, prefix, opts)
}

// A group's members, shares and moves.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		join := func(name string) (leave context.CancelFunc, done chan error) {
			g, err := group.Join(ctx, mem, &group.Options{Partitions: 8, Identity: name, Clock: clock.Go(), Probe: &probe.Options{Clients: 2, Rounds: 1, Refusals: 2}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, leave := context.WithCancel(ctx)
			done = make(chan error, 1)
			go func() {
				done <- g.Run(ctx, func(ctx context.Context, _ *group.Partition) error {
					<-ctx.Done()
					return nil
				})
			}()
			return leave, done
		}
		_, first := join("ann")
		time.Sleep(time.Minute)
		watching(t, 12, mem, func(h *outside.Hub, count *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			s := state(h)
			if s.Kind != "group" || s.Err != "" || s.Group.Partitions != 8 || len(s.Group.Members) != 1 || s.Group.Members[0].Owned != 8 {
				t.Fatalf("%+v %+v", s, s.Group)
			}
			leave, second := join("bob")
			time.Sleep(5 * time.Minute)
			g := state(h).Group
			if len(g.Members) != 2 || g.Members[0].Owned != 4 || g.Members[1].Owned != 4 || len(g.Moves) != 1 || g.Moves[0].Partitions != 4 {
				t.Errorf("%+v", g)
			}
			count.Store(0)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if count.Load() > 130 {
				t.Errorf("%d requests in ten minutes", count.Load())
			}
			leave()
			<-second
		})
		cancel()
		<-first
	})
}

// Epochs that nobody folds have more slots than a look lists. Then the number is a lower bound, until some looks have
// listed them all. A store that lists in no order does not allow that.
func TestManyUnfolded(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		for range 2 {
			n := lead(t, l.Mem, "x")
			n.append(t, 1500)
			_ = n.w.Close(t.Context())
			_ = n.Resign(t.Context())
		}
		n := lead(t, l.Mem, "y")
		n.append(t, 10)
		time.Sleep(time.Minute) // until it has noted how far it is
		watching(t, 12, &sick{Store: l.Mem, sorted: true}, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(20 * time.Second)
			if v := state(h).Log; !left(v).More || left(v).Objects < 2000 || left(v).Objects > 3013 || v.Tail != logtest.At(3, 11) {
				t.Errorf("%d of 3,013, more %v, tail %v", left(v).Objects, left(v).More, v.Tail)
			}
			time.Sleep(2 * time.Minute)
			if v := state(h).Log; left(v).More || left(v).Objects != 3013 || v.Tail != logtest.At(3, 11) {
				t.Errorf("%d of 3,013, more %v, tail %v", left(v).Objects, left(v).More, v.Tail)
			}
		})
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(3 * time.Minute)
			v := state(h).Log
			if !left(v).More || left(v).Objects < 2000 || left(v).Objects > 3013 || v.Tail != logtest.At(3, 11) {
				t.Errorf("%d of 3,013, more %v, tail %v", left(v).Objects, left(v).More, v.Tail)
			}
			c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(1), Clock: clock.Go()})
			if err == nil {
				_, err = c.Once(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if v := state(h).Log; left(v).More || left(v).Objects != 0 {
				t.Errorf("folded: %d, more %v", left(v).Objects, left(v).More)
			}
		})
	})
}
