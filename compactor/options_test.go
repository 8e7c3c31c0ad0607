package compactor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestOptions(t *testing.T) {
	for says, o := range map[string]Options{
		"Interval is -1s": {Interval: -time.Second}, "MaxAge is -1s": {MaxAge: -time.Second}, "MinObjects is -1": {MinObjects: -1},
		"SegmentBytes is -1": {SegmentBytes: -1}, "FanIn is 1": {FanIn: 1},
		"Concurrency is -1": {Concurrency: -1}, "Concurrency is 1073741824; it must be from 1 to 4096": {Concurrency: 1 << 30},
		"Levels is -1": {Levels: -1}, "Levels is 65; it must be from 1 to 64": {Levels: 65},
		"RequestsPerSecond is -1": {RequestsPerSecond: -1}, "BytesPerSecond is -1": {BytesPerSecond: -1},
		"Retain.Age is -1ns": {Retain: Retain{Age: -1}}, "Retain.Bytes is -1": {Retain: Retain{Bytes: -1}},
		"KeepVersions is -1": {KeepVersions: -1}, "KeepVersionsFor is -1ns": {KeepVersionsFor: -1},
		"Validity 1µs must be": {Leader: &leader.Options{Validity: time.Microsecond}},
		"Renew 1h0m0s":         {Leader: &leader.Options{Renew: time.Hour}},
		"Keep -5":              {Leader: &leader.Options{Prune: leader.PruneOptions{Keep: -5}}},
		"For -5h0m0s":          {Leader: &leader.Options{Prune: leader.PruneOptions{For: -5 * time.Hour}}},
	} {
		if _, err := New(memstore.New(nil), &o); !errors.Is(err, ErrOptions) || !strings.HasPrefix(err.Error(), "compactor: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q, got %v", says, err)
		}
	}
	bad := &Options{Levels: -1, FanIn: 1}
	if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "Levels is -1") || !strings.Contains(err.Error(), "FanIn is 1") {
		t.Errorf("not all faults are told: %v", err)
	}
	if _, err := New(nil, nil); !errors.Is(err, ErrOptions) {
		t.Errorf("no store: %v", err)
	}
	if _, err := New(memstore.New(nil), nil); err != nil || (*Options)(nil).Validate() != nil {
		t.Error(err)
	}
	w := newWorld(t, 0, nil)
	w.Remove(layout.FormatKey)
	if _, err := w.once(w.Mem, 1, nil); !errors.Is(err, manifest.ErrNotInitialized) {
		t.Errorf("where there is no log: %v", err)
	}
}

// What a compactor does takes as long as its limits say, in virtual time, and no
// longer without any.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		o           Options
		least, most time.Duration
	}{
		"no limit": {Options{}, 0, 0},
		// 200 objects are read, and some lists and deletes.
		"requests": {Options{RequestsPerSecond: 10}, 19 * time.Second, 30 * time.Second},
		// Each has 128 bytes and more, and is read, written and, when merged, both again.
		"bytes":     {Options{BytesPerSecond: 1000}, 25 * time.Second, 120 * time.Second},
		"both":      {Options{RequestsPerSecond: 10, BytesPerSecond: 1_000_000}, 19 * time.Second, 30 * time.Second},
		"very slow": {Options{BytesPerSecond: 1, RequestsPerSecond: 1}, 200 * 128 * time.Second, 100_000 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, func(t *testing.T, w *world) {
				w.Lead(100)
				w.compact(w.Mem, nil)
				w.Lead(200)
				o := running(&c.o)
				o.FanIn, o.Levels, o.NoCompress = 2, 40, true
				began := clock.Go().Now()
				w.compact(w.Mem, o)
				if took := clock.Go().Now().Sub(began); took < c.least || took > c.most {
					t.Errorf("it took %v, want %v to %v", took, c.least, c.most)
				}
				w.holds("at the end")
			})
		})
	}
}
