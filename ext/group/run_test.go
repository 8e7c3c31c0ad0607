package group_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// fleet is a group of workers that append to the logs of its partitions, in virtual time.
type fleet struct {
	*testing.T
	mem    *memstore.Store
	faulty *faultstore.Store
	n      int
	grace  time.Duration // of new logs; 0: the default

	mu    sync.Mutex
	acked [][]string // by partition
	who   []string   // who appended last

	change func(*group.RunOptions) // of each worker that joins
	pace   time.Duration           // of the appends to each partition
}

type hand struct {
	st     *faultstore.Store
	cancel context.CancelCauseFunc
	ended  chan error
}

func inFleet(t *testing.T, partitions int, f func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		o := &faultstore.Options{Clock: clock.Go(), Rates: faultstore.Rates{MaxDelay: 20 * time.Millisecond}}
		f(&fleet{T: t, mem: mem, faulty: faultstore.New(mem, o), n: partitions, acked: make([][]string, partitions), who: make([]string, partitions), pace: time.Second})
	})
}

func (f *fleet) options(name string) *group.RunOptions {
	return &group.RunOptions{
		Group: &group.Options{
			Partitions: f.n, Identity: name, Clock: clock.Go(), Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1, Clock: clock.Go()},
		},
		Writer: &writer.Options{Clock: clock.Go(), Init: &manifest.InitOptions{Grace: f.grace}},
	}
}

// grow makes room for the partitions up to n.
func (f *fleet) grow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked, f.who = append(f.acked, make([][]string, f.n-len(f.acked))...), append(f.who, make([]string, f.n-len(f.who))...)
}

// join starts a worker that appends a record to each partition that it owns, at the fleet's pace.
func (f *fleet) join(name string) *hand {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := &hand{st: f.faulty.Client(name), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		o := f.options(name)
		if f.change != nil {
			f.change(o)
		}
		h.ended <- group.Run(ctx, h.st, o, func(ctx context.Context, s *group.Session) error {
			p := s.Partition.Number()
			for ctx.Err() == nil {
				f.mu.Lock()
				value := fmt.Sprintf("%d/%d/%s", p, s.Partition.Token().Epoch(), name)
				f.mu.Unlock()
				if _, err := s.Append(ctx, [][]byte{[]byte(value)}); err != nil {
					return err
				}
				f.mu.Lock()
				f.acked[p] = append(f.acked[p], value)
				f.who[p] = name
				f.mu.Unlock()
				_ = clock.Sleep(ctx, o.Writer.Clock, f.pace)
			}
			return context.Cause(ctx)
		})
	}()
	return h
}

// stop ends a worker in good order.
func (f *fleet) stop(h *hand) {
	f.Helper()
	h.cancel(errStop)
	select {
	case err := <-h.ended:
		if err != nil {
			f.Errorf("Run says %v", err)
		}
	case <-time.After(time.Hour):
		f.Fatal("RunGroup does not end")
	}
}

// sound fails the test unless each log is one history that has all acknowledged records, in order.
func (f *fleet) sound() {
	f.Helper()
	for p, all := range f.logs() {
		i := 0
		for _, value := range all {
			if i < len(f.acked[p]) && f.acked[p][i] == value {
				i++
			}
		}
		if i < len(f.acked[p]) || len(all) > len(f.acked[p])+20 {
			f.Errorf("partition %d: of %d acknowledged records %d are there, of %d", p, len(f.acked[p]), i, len(all))
		}
	}
}

func (f *fleet) owners() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all = slices.Compact(slices.Sorted(slices.Values(f.who)))
	return all
}

// Workers come, go, crash and freeze. Each log is one history, and only the group probes the store.
func TestRunGroup(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		a := f.join("a")
		time.Sleep(10 * time.Second)
		b, c := f.join("b"), f.join("c")
		time.Sleep(20 * time.Second)
		if got := f.owners(); len(got) != 3 {
			f.Errorf("%v own partitions", got)
		}
		resume := b.st.Pause()
		time.Sleep(40 * time.Second)
		if got := f.owners(); slices.Contains(got, "b") {
			f.Errorf("%v own partitions, and b is frozen", got)
		}
		resume()
		time.Sleep(30 * time.Second)
		f.stop(a)
		c.st.Crash()
		c.cancel(errStop)
		<-c.ended
		time.Sleep(40 * time.Second)
		if got := f.owners(); !slices.Equal(got, []string{"b"}) {
			f.Errorf("%v own partitions, and only b is left", got)
		}
		f.stop(b)
		f.sound()
		if n := f.faulty.Counts().Of("", "partition/000000/tmp/"); n > 0 {
			f.Errorf("the log of a partition probed the store: %d requests", n)
		}
	})
}

// The report of the group's probe does not count any more when its logs are made. One of them probes
// the store for all, and none does when the logs are opened again.
func TestRunGroupProbesAgain(t *testing.T) {
	for name, change := range map[string]func(report map[string]any){
		"31 days old": nil, "another version": func(r map[string]any) { r["version"] = 0 }, "a promise is missing": func(r map[string]any) { r["kept"] = []string{} },
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 5, func(f *fleet) {
				g, err := group.Join(f.Context(), f.mem, f.options("first").Group)
				if err != nil {
					f.Fatal(err)
				}
				if err := g.Leave(f.Context()); err != nil {
					f.Fatal(err)
				}
				if change == nil {
					time.Sleep(31 * 24 * time.Hour)
				} else {
					f.rewrite(member.FormatKey, func(doc map[string]any) { change(doc["probe"].(map[string]any)) })
				}
				probed := func() (n int) {
					for p := range f.n {
						if f.faulty.Counts().Of("", fmt.Sprintf("partition/%06d/tmp/", p)) > 0 {
							n++
						}
					}
					return n
				}
				f.change = func(o *group.RunOptions) { o.Writer.Init.Probe = o.Group.Probe }
				a := f.join("a")
				time.Sleep(30 * time.Second)
				if got := f.owners(); !slices.Equal(got, []string{"a"}) {
					f.Errorf("%v own partitions", got)
				}
				f.stop(a)
				if n := probed(); n != 1 {
					f.Errorf("%d logs have probed the store, want 1", n)
				}
				f.faulty.ResetCounts()
				b := f.join("b")
				time.Sleep(time.Minute)
				f.stop(b)
				if n := probed(); n != 0 {
					f.Errorf("%d logs have probed the store again", n)
				}
				f.sound()
			})
		})
	}
}

// rewrite changes a document.
func (f *fleet) rewrite(key string, change func(doc map[string]any)) {
	f.Helper()
	body, _, err := store.Read(f.Context(), f.mem, key, &store.ReadOptions{Limit: 1 << 20})
	doc := map[string]any{}
	if err == nil {
		err = json.Unmarshal(body, &doc)
	}
	if err == nil {
		change(doc)
		delete(doc, "checksum")
		body, err = document.Encode(key, doc)
	}
	if err == nil {
		_, err = f.mem.Put(f.Context(), key, body, nil)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// The log of one partition is damaged. It is tried by three workers and left; the others go on.
func TestRunGroupWithADamagedLog(t *testing.T) {
	inFleet(t, 4, func(f *fleet) {
		if _, err := f.mem.Put(f.Context(), "partition/000002/format.json", []byte("junk"), nil); err != nil {
			f.Fatal(err)
		}
		var mu sync.Mutex
		tries, reports := map[string]int{}, 0
		f.change = func(o *group.RunOptions) {
			name := o.Group.Identity
			o.Group.Hooks.Opened = func(e group.Opening) {
				mu.Lock()
				defer mu.Unlock()
				if e.Partition == 2 {
					tries[name]++
				}
			}
			o.Group.Hooks.Parked = func(e group.Parking) {
				mu.Lock()
				defer mu.Unlock()
				if reports++; e != (group.Parking{Partition: 2}) {
					f.Errorf("reported is %+v", e)
				}
			}
		}
		var all []*hand
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, f.join(name))
		}
		time.Sleep(30 * time.Minute)
		mu.Lock()
		gaveUp := 0
		for _, n := range tries {
			if n >= 3 { // or it moved before that
				gaveUp++
			}
		}
		if gaveUp != 3 || reports != 1 {
			f.Errorf("it was tried %v times, and reported %d times", tries, reports)
		}
		mu.Unlock()
		for _, h := range all {
			f.stop(h)
		}
		for p, all := range f.acked {
			if (p == 2) != (len(all) == 0) {
				f.Errorf("partition %d has %d records", p, len(all))
			}
		}
	})
}

// A hook that ends its goroutine, as t.FailNow does, fails that opening only. The work gets no session without a
// writer, and is called when the log is opened again.
func TestRunGroupHookEndsItsGoroutine(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		var opened atomic.Int64
		var failed atomic.Pointer[error]
		f.change = func(o *group.RunOptions) {
			o.Writer.Hooks.Opened = func(writer.Opening) {
				if opened.Add(1) == 1 {
					runtime.Goexit()
				}
			}
			o.Group.Hooks.Closed = func(e group.Closing) { failed.CompareAndSwap(nil, &e.Err) }
		}
		a := f.join("a")
		time.Sleep(time.Minute)
		f.stop(a)
		if err := failed.Load(); err == nil || *err == nil || !strings.Contains((*err).Error(), "hook") {
			f.Errorf("the group has heard %v", err)
		}
		if opened.Load() < 2 || len(f.acked[0]) == 0 {
			f.Errorf("the log was opened %d times, and has %d records", opened.Load(), len(f.acked[0]))
		}
		f.sound()
	})
}

// When the store is overloaded, all logs of a process wait together.
func TestRunGroupCalmsDown(t *testing.T) {
	inFleet(t, 20, func(f *fleet) {
		a := f.join("a")
		time.Sleep(20 * time.Second)
		f.faulty.ResetCounts()
		f.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if strings.HasPrefix(op.Key, "partition/") {
				return faultstore.Fault{Drop: true, Err: &store.Error{Op: string(op.Kind), Key: op.Key, Status: 503, Code: "SlowDown"}}
			}
			return faultstore.Fault{}
		})
		time.Sleep(20 * time.Second)
		f.Logf("%d requests", f.faulty.Counts().Of("", "partition/"))
		// Twenty logs with their own retries alone, 2 s apart at most, would send some 400.
		if n := f.faulty.Counts().Of("", "partition/"); n > 200 {
			f.Errorf("%d requests in 20 s of overload", n)
		}
		f.faulty.SetHook(nil)
		time.Sleep(20 * time.Second)
		f.stop(a)
		f.sound()
	})
}

// live is the memory of heap and stacks that is in use, in bytes.
func live() int64 {
	runtime.GC()
	runtime.GC() // what pools held until now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Idle partitions cost few goroutines, little memory, and no request, also after work on them.
func TestRunGroupIdle(t *testing.T) {
	inFleet(t, 200, func(f *fleet) {
		before, memory := runtime.NumGoroutine(), live()
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- group.Run(ctx, f.faulty, f.options("idle"), func(ctx context.Context, s *group.Session) error {
				if s.Partition.Number()%2 == 0 {
					if _, err := s.Append(ctx, [][]byte{[]byte("work")}); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		time.Sleep(2 * time.Minute)
		n := runtime.NumGoroutine() - before
		f.Logf("%.1f goroutines for each partition", float64(n)/200)
		if n > 4*200+20 {
			f.Errorf("%d goroutines for 200 idle partitions", n)
		}
		// 50 MiB for 1,000. The store's objects are in it, too.
		each := (live() - memory) / 200
		f.Logf("%d bytes for each partition", each)
		limit := int64(50 << 20 / 1000)
		if test.Race { // the detector takes memory, too
			limit *= 2
		}
		if each > limit {
			f.Errorf("an idle partition takes %d bytes", each)
		}
		f.faulty.ResetCounts()
		time.Sleep(10 * time.Minute)
		if n := f.faulty.Counts().Of("", "partition/"); n > 0 {
			f.Errorf("idle partitions made %v in ten minutes", f.faulty.Counts())
		}
		cancel(errStop)
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
}

// TestRunGroupToldToEnd: a member is told to end, or is drained, and the store does not answer an append for which its work does not wait. Run does not
// return nil, whatever the work returns: nobody else says that a record is missing.
func TestRunGroupToldToEnd(t *testing.T) {
	for i := range 4 {
		done, drained := i%2 > 0, i/2 > 0
		inFleet(t, 1, func(f *fleet) {
			var down atomic.Bool
			f.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if op.Kind == faultstore.Put && strings.Contains(op.Key, "/data/") && down.Load() {
					return faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}
				}
				return faultstore.Fault{}
			})
			stop := errors.New("the process is told to stop")
			ctx, cancel := context.WithCancelCause(f.Context())
			working := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				ended <- group.Run(ctx, f.faulty, f.options("a"), func(ctx context.Context, s *group.Session) error {
					if _, err := s.Append(ctx, [][]byte{[]byte("a")}); err != nil {
						return err
					}
					down.Store(true)
					_, _ = s.AppendAsync(ctx, [][]byte{[]byte("b")})
					close(working)
					<-ctx.Done()
					if done {
						return nil
					}
					return context.Cause(ctx)
				})
			}()
			<-working
			if !drained {
				cancel(stop)
			} else {
				stop = group.ErrLeft
				for s, err := range group.Observe(ctx, f.faulty, &group.Options{Clock: clock.Go()}) {
					if err == nil {
						err = group.Drain(ctx, f.faulty, s.Members[0].Name, &group.Options{Clock: clock.Go()})
					}
					if err != nil {
						t.Fatal(err)
					}
					break
				}
			}
			if err := <-ended; !errors.Is(err, stop) || !errors.Is(err, writer.ErrUnknown) {
				t.Errorf("done %t, drained %t: Run returns %v", done, drained, err)
			}
			cancel(nil)
		})
	}
}

func TestRunGroupReportsAllFaults(t *testing.T) {
	err := group.Run(t.Context(), nil, &group.RunOptions{Group: &group.Options{Partitions: -1}, Opens: -2, Writer: &writer.Options{Concurrency: -1}}, nil)
	if !errors.Is(err, group.ErrOptions) || errors.Is(err, leader.ErrOptions) {
		t.Fatal(err)
	}
	for _, says := range []string{"Group: group: invalid options: Partitions -1", "Concurrency -1", "Opens: -2", "work is nil", "store is nil"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}
