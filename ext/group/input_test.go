package group_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
)

// fast is a clock that runs at another rate.
type fast struct {
	clock.Clock
	start clock.Instant
	rate  float64
}

func (f *fast) Now() clock.Instant {
	return f.start.Add(time.Duration(float64(f.Clock.Now().Sub(f.start)) * f.rate))
}

func (f *fast) AfterFunc(d time.Duration, do func()) clock.Timer {
	return f.Clock.AfterFunc(time.Duration(float64(d)/f.rate)+time.Microsecond, do)
}

// A member whose clock does not run at its rate says so. One that runs a little fast does not.
func TestClockAtAnotherRate(t *testing.T) {
	for _, c := range []struct {
		rate float64
		says bool
	}{{1.05, true}, {0.95, true}, {1.0005, false}} {
		inWorld(t, 2, func(w *world) {
			core, logs := observer.New(zap.ErrorLevel)
			a := w.worker("a", func(x *worker) {
				x.opts.Logger = zap.New(core)
				x.opts.Clock = &fast{clock.Go(), clock.Go().Now(), c.rate}
			})
			w.whole(time.Minute, a)
			time.Sleep(30 * time.Minute)
			said := logs.FilterMessageSnippet("does not run at its rate").Len()
			if (said > 0) != c.says {
				w.Errorf("rate %v: it was said %d times", c.rate, said)
			}
			w.end(a)
		})
	}
}

// A process is frozen until long after its heartbeat was applied. Its clock is not to blame.
func TestFrozenClockIsRight(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		core, logs := observer.New(zap.ErrorLevel)
		frozen := &fixture.Absentee{Client: "a", Landing: fixture.Applied, At: "group/member/"}
		a := w.worker("a", func(x *worker) { x.opts.Logger, x.opts.Clock, frozen.Store = zap.New(core), &frozen.Clock, x.st })
		time.Sleep(10*time.Minute + 3*time.Second) // the next heartbeat is the first that is compared
		w.faulty.SetHook(frozen.Hook())
		frozen.Await(w)
		time.Sleep(validity * 2 / 5)
		frozen.Return(w)
		time.Sleep(30 * time.Minute)
		for _, said := range logs.All() {
			w.Error(said.Message)
		}
		w.end(a)
		if len(a.errs) != 1 {
			w.Errorf("it ended with %v", a.errs)
		}
	})
}

// Weights may be as far apart as they like.
func TestExtremeWeights(t *testing.T) {
	inWorld(t, 20, func(w *world) {
		weighs := func(n int) func(*worker) { return func(x *worker) { x.opts.Weight = n } }
		all := []*worker{w.worker("none", weighs(-1)), w.worker("least", weighs(1)), w.worker("most", weighs(1_000_000_000)), w.worker("default", weighs(0))}
		time.Sleep(2 * time.Minute)
		for i, want := range []int{0, 0, 20, 0} {
			if got := w.owned(all[i]); got != want {
				w.Errorf("%s owns %d, want %d", all[i].name, got, want)
			}
		}
		all[2].crash()
		time.Sleep(time.Minute)
		if a, b := w.owned(all[1]), w.owned(all[3]); a != 10 || b != 10 {
			w.Errorf("the others own %d and %d", a, b)
		}
		w.end(all...)
	})
}

// A group of a later format is refused, with what to do.
func TestLaterFormat(t *testing.T) {
	ctx, mem := context.Background(), memstore.New(nil)
	body, err := document.Encode("group/group.json", &struct {
		Format int `json:"format"`
	}{99})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Put(ctx, "group/group.json", body, nil); err != nil {
		t.Fatal(err)
	}
	_, err = group.Join(ctx, mem, nil)
	if !errors.Is(err, fence.ErrFormat) || !strings.Contains(err.Error(), "group/group.json") || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("Join: %v", err)
	}
	if _, err := group.Partitions(ctx, mem); !errors.Is(err, fence.ErrFormat) {
		t.Errorf("Partitions: %v", err)
	}
}

// Create makes a group, raises the number of its partitions, and lowers it never.
func TestCreate(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		for _, c := range []struct {
			ask, want int
			err       error
		}{{0, 3, nil}, {5, 5, nil}, {5, 5, nil}, {4, 5, group.ErrOptions}, {-1, 5, group.ErrOptions}} {
			if err := group.Create(w.Context(), w.mem, &group.Options{Partitions: c.ask, Clock: clock.Go()}); !errors.Is(err, c.err) {
				w.Errorf("Create(%d): %v, want %v", c.ask, err, c.err)
			}
			if n, err := group.Partitions(w.Context(), w.mem); n != c.want || err != nil {
				w.Errorf("after Create(%d) there are %d, %v", c.ask, n, err)
			}
		}
	})
}
