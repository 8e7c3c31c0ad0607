package writer_test

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// Options that contradict one another, or the log, are refused with the numbers, and no
// epoch is opened.
func TestOptions(t *testing.T) {
	limits := fence.Limits{Object: 1000, Record: 500, Cursor: 10}
	for _, c := range []struct {
		opts *writer.Options
		want string // in the error; "" means that they are good
	}{
		{nil, ""},
		{&writer.Options{Concurrency: -1}, "Concurrency -1 must be from 1 to 4096"},
		{&writer.Options{Concurrency: 4097}, "Concurrency 4097"},
		{&writer.Options{Concurrency: 4096}, ""},
		{&writer.Options{Window: -1}, "Window -1"},
		{&writer.Options{Window: 15}, "Window 15 must be from Concurrency 16"},
		{&writer.Options{Window: 16}, ""},
		{&writer.Options{Window: 1<<16 + 1}, "to 65536"},
		{&writer.Options{Window: 1 << 16}, ""},
		{&writer.Options{BatchBytes: -1}, "BatchBytes -1"},
		{&writer.Options{BatchBytes: 1001}, "BatchBytes 1001 is over 1000, the limit of this log"},
		{&writer.Options{BatchBytes: 1000}, ""},
		{&writer.Options{MaxBytes: 31}, "MaxBytes 31 is below 32: as many objects as Concurrency 16"},
		{&writer.Options{MaxBytes: 32}, ""},
		{&writer.Options{MaxBytes: 1, Concurrency: 1}, "MaxBytes 1 is below"},
		{&writer.Options{MaxBytes: 100, BatchBytes: 101}, "MaxBytes 100 is below BatchBytes 101"},
		{&writer.Options{Linger: -1}, "Linger -1ns must not be negative"},
		{&writer.Options{RequestsPerSecond: -1}, "RequestsPerSecond -1"},
		{&writer.Options{RequestsPerSecond: math.NaN()}, "RequestsPerSecond NaN"},
		{&writer.Options{RequestsPerSecond: 1e-9}, "RequestsPerSecond 1e-09 must be at least 1 a day, which is 1.0/86400,"},
		{&writer.Options{RequestsPerSecond: math.Inf(1)}, ""},
		{&writer.Options{Hedge: 0.4}, "Hedge 0.4 must be at least 0.5 and less than 1"},
		{&writer.Options{Hedge: -1}, ""},
		{&writer.Options{Hedge: 1, Linger: -1}, "Linger -1ns must not be negative\nwriter: invalid options: Hedge 1 must"}, // all faults
		{&writer.Options{Hedge: 0.95}, ""},
		{&writer.Options{Init: &manifest.InitOptions{Limits: fence.Limits{Manifest: -5}}}, "manifests of -5 bytes"},
		{&writer.Options{Init: &manifest.InitOptions{Grace: 1}}, "a grace of 1ns is too short"},
	} {
		bad := func(err error) bool {
			return (err == nil) != (c.want == "") || err != nil && !(errors.Is(err, writer.ErrOptions) && strings.Contains(err.Error(), c.want))
		}
		// What depends on the log alone only Open finds.
		if err := c.opts.Validate(); bad(err) && !strings.Contains(c.want, "this log") {
			t.Errorf("%+v: Validate says %v, want %q", c.opts, err, c.want)
		}
		bubbleOn(t, limits, func(t *testing.T, e *env) {
			w, err := e.try("a", 1, c.opts)
			if bad(err) {
				t.Errorf("%+v: error is %v, want %q", c.opts, err, c.want)
			}
			if err == nil {
				abandon(w)
			} else if h := e.header(frame.Genesis()); h.Kind != 0 {
				t.Errorf("%+v: the log was sealed all the same", c.opts)
			}
		})
	}
}

// Bad options are told before anything is written, the log itself included.
func TestOptionsBeforeTheLog(t *testing.T) {
	st := memstore.New(nil)
	for _, opts := range []*writer.Options{{Concurrency: -1}, {Init: &manifest.InitOptions{Limits: fence.Limits{Object: -1}}}} {
		if _, err := writer.Open(t.Context(), st, fence.NewToken(1), opts); err == nil {
			t.Errorf("%+v were taken", opts)
		}
	}
	if n, _ := st.Len(); n != 0 {
		t.Errorf("%d objects were written", n)
	}
}

// The greatest epoch would be the log's last.
func TestOpenGreatestEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		if _, err := e.try("a", math.MaxUint64, nil); err == nil || !strings.Contains(err.Error(), "no room for a successor") {
			t.Errorf("it opened: %v", err)
		}
		e.Lead(1)
		e.holds(e.History()...)
	})
}

// The caller's options are not changed.
func TestOptionsAreCopied(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		settle, init := store.SettleOptions{}, manifest.InitOptions{}
		opts := writer.Options{Settle: &settle, Init: &init}
		abandon(e.open("a", 1, &opts))
		if opts.Concurrency != 0 || settle.Clock != nil || init.Settle != nil {
			t.Errorf("%+v, %+v, %+v", opts, settle, init)
		}
	})
}

// timers counts the timers that are asked of it.
type timers struct {
	clock.Clock
	n atomic.Int64
}

func (c *timers) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.n.Add(1)
	return c.Clock.AfterFunc(d, f)
}

// Retries go by Options.Clock, unless they have been given another.
func TestSettleClock(t *testing.T) {
	for name, own := range map[string]bool{"default": false, "own": true} {
		bubble(t, func(t *testing.T, e *env) {
			c := &timers{Clock: clock.Go()}
			opts := *single
			opts.Clock, opts.Settle = c, &store.SettleOptions{}
			if own {
				opts.Settle.Clock = clock.Go()
			}
			w := e.open("a", 1, &opts)
			e.append(w, "awake") // a timer tells when it rests again
			synctest.Wait()
			before := c.n.Load()
			e.append(w, "0")
			if got := c.n.Load() - before; (got == 0) != own {
				t.Errorf("%s: an append took %d timers of Options.Clock", name, got)
			}
		})
	}
}
