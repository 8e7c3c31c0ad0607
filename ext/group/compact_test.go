package group_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/probe"
)

// compact starts a process that compacts the logs of all partitions.
func (f *fleet) compact(name string, requestsPerSecond int) *hand {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := &hand{st: f.faulty.Client(name), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		h.ended <- group.Compact(ctx, h.st, &group.CompactOptions{
			Group: &group.Options{
				Identity: name, Clock: clock.Go(), Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1, Clock: clock.Go()},
			},
			Compactor:         &compactor.Options{Interval: 10 * time.Second, IdleInterval: 10 * time.Minute, MinObjects: 8},
			RequestsPerSecond: requestsPerSecond,
		})
	}()
	return h
}

// count counts objects below a prefix of each partition.
func (f *fleet) count(prefix string) (all []int) {
	f.Helper()
	for p := range f.n {
		st, err := group.PartitionStore(f.mem, p)
		if err != nil {
			f.Fatal(err)
		}
		n := 0
		for _, err := range st.List(f.Context(), prefix, nil) {
			if err != nil {
				f.Fatal(err)
			}
			n++
		}
		all = append(all, n)
	}
	return all
}

// folded fails the test unless each log has a segment, and few objects that are not folded or pruned.
func (f *fleet) folded(what string, most int) {
	f.Helper()
	segments, data := f.count("segment/"), f.count("data/")
	for p := range f.n {
		if segments[p] == 0 || data[p] > most {
			f.Errorf("%s: partition %d has %d segments and %d objects", what, p, segments[p], data[p])
		}
	}
}

// Two processes share the logs of a group. One crashes, and later partitions are added: each log is
// compacted all the same, by one process at a time.
func TestCompactGroup(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		f.grace = time.Minute
		a := f.join("a")
		for n := 0; n == 0; n, _ = group.Partitions(f.Context(), f.mem) {
			time.Sleep(time.Second) // until the group is there
		}
		by := map[string]int{} // requests for logs, by process
		f.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if strings.HasPrefix(op.Key, "partition/") {
				by[op.Client]++
			}
		})
		x, y := f.compact("x", 0), f.compact("y", 0)
		time.Sleep(5 * time.Minute)
		// A record a second for two graces and a little.
		f.folded("two processes", 200)
		f.mu.Lock()
		if by["x"] < by["y"]/3 || by["y"] < by["x"]/3 {
			t.Errorf("the two do not share the work: %v", by)
		}
		f.mu.Unlock()
		x.st.Crash()
		x.cancel(errStop)
		<-x.ended
		f.n = 9
		f.grow()
		b := f.join("b") // with more partitions
		time.Sleep(7 * time.Minute)
		f.folded("one crashed, and partitions were added", 200)
		f.stop(a)
		f.stop(b)
		f.stop(y)
		f.sound()
		if n := f.faulty.Counts().Of("", "partition/000000/compactor-lock/"); n > 0 {
			t.Errorf("%d requests for the lock of an election", n)
		}
	})
}

// A bound on requests is for all logs together. Logs in which nothing happens are looked at less often.
func TestCompactGroupIsBounded(t *testing.T) {
	inFleet(t, 40, func(f *fleet) {
		f.grace = time.Minute
		a := f.join("a")
		time.Sleep(time.Minute)
		f.stop(a)
		const perSecond = 5
		x := f.compact("x", perSecond)
		time.Sleep(time.Minute)
		f.faulty.ResetCounts()
		time.Sleep(10 * time.Minute)
		n := f.faulty.Counts().Of("", "partition/")
		t.Logf("busy: %.2f requests a second", float64(n)/600)
		if n > 600*perSecond*11/10 || n < 600*perSecond/2 {
			t.Errorf("%d requests in ten minutes, %d a second are allowed", n, perSecond)
		}
		time.Sleep(4 * time.Hour)
		f.faulty.ResetCounts()
		time.Sleep(time.Hour)
		n = f.faulty.Counts().Of("", "partition/")
		t.Logf("idle: %.2f requests a minute for each log", float64(n)/60/40)
		if n > 40*30 {
			t.Errorf("%d requests in an hour for 40 logs in which nothing happens", n)
		}
		f.folded("at the end", 20)
		f.stop(x)
		f.sound()
	})
}

// The log of one partition is damaged. The others are compacted.
func TestCompactGroupWithADamagedLog(t *testing.T) {
	inFleet(t, 4, func(f *fleet) {
		f.grace = time.Minute
		a := f.join("a")
		time.Sleep(time.Minute)
		f.stop(a)
		key := "partition/000002/format.json"
		if _, err := f.mem.Put(f.Context(), key, []byte("junk"), nil); err != nil {
			t.Fatal(err)
		}
		x := f.compact("x", 0)
		time.Sleep(10 * time.Minute)
		f.stop(x)
		for p, n := range f.count("segment/") {
			if (p == 2) != (n == 0) {
				t.Errorf("partition %d has %d segments", p, n)
			}
		}
	})
}

func TestCompactGroupReportsAllFaults(t *testing.T) {
	err := group.Compact(t.Context(), nil, &group.CompactOptions{
		Group: &group.Options{Partitions: 3}, Compactor: &compactor.Options{Token: fence.NewToken(1), FanIn: 1}, RequestsPerSecond: -1, BytesPerSecond: -2, Concurrency: -3,
	})
	if !errors.Is(err, group.ErrOptions) {
		t.Fatal(err)
	}
	for _, says := range []string{"Partitions must be 0", "Token and Budget must not be set", "FanIn is 1", "RequestsPerSecond: -1", "BytesPerSecond: -2", "Concurrency: -3", "store is nil"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	inFleet(t, 1, func(f *fleet) {
		if err := group.Compact(f.Context(), f.mem, nil); !errors.Is(err, group.ErrNoGroup) {
			t.Errorf("where there is no group: %v", err)
		}
	})
}
