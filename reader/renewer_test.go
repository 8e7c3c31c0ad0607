package reader_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// A store that does not answer for as long as the pin holds is a loss too: nobody can tell whether a
// compactor took the pin away meanwhile. It counts from before the last renewal was sent, and does not
// wait for the one that hangs. What is left of the pin is removed all the same.
//
// guard:pin-late. The time of a pin counts from before the last confirmed renewal was sent; a timer
// ends it. Without this timer: a snapshot's holder cannot reach the store for that time; a compactor
// expires the pin, and deletes file f; the holder reaches the store again, and opens file f before its
// next renewal; it does not find file f, and reports damage in a sound log.
func TestPinNotRenewed(t *testing.T) {
	const ttl = 30 * time.Second
	inTable(t, 0, func(w *table) {
		w.record(1)
		s, err := w.reader(nil).Snapshot(context.Background(), &reader.SnapshotOptions{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		var sent atomic.Pointer[time.Time] // the last renewal; its answer is slow
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			now := time.Now()
			switch {
			case op.Kind != faultstore.Put:
				return faultstore.Fault{}
			case sent.CompareAndSwap(nil, &now):
				return faultstore.Fault{ReplyDelay: 5 * time.Second}
			}
			return faultstore.Fault{Drop: true, Hang: true}
		})
		<-s.Lost()
		if took := time.Since(*sent.Load()); took != ttl || !errors.Is(s.Err(), reader.ErrPinLost) || !errors.Is(s.Err(), context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, s.Err())
		}
		w.Faulty.SetHook(nil)
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if pins := w.Keys(layout.PinPrefix); len(pins) > 0 {
			t.Errorf("pins are left: %q", pins)
		}
	})
}

// One renewal that is never answered is no loss, whether it was applied or not.
func TestRenewalHangsOnce(t *testing.T) {
	for _, drop := range []bool{false, true} {
		inTable(t, 0, func(w *table) {
			w.record(1)
			s, err := w.reader(nil).Snapshot(context.Background(), &reader.SnapshotOptions{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var puts atomic.Int64
			w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if op.Kind == faultstore.Put && puts.Add(1) == 1 {
					return faultstore.Fault{Drop: drop, Hang: true}
				}
				return faultstore.Fault{}
			})
			time.Sleep(5 * time.Minute)
			if err := errors.Join(s.Err(), s.Close(context.Background())); err != nil || puts.Load() < 10 {
				t.Errorf("dropped %t, %d renewals: %v", drop, puts.Load(), err)
			}
		})
	}
}

// The end is found more slowly than the pin would hold: it is renewed from the beginning.
// If it is not found, because of damage, the pin goes, and nobody renews it any more.
func TestPinRenewedWhileFinding(t *testing.T) {
	const ttl = 30 * time.Second
	for name, damage := range map[string]bool{"found": false, "damaged": true} {
		inTable(t, 0, func(w *table) {
			w.record(3)
			w.compact(8)
			w.edit(3, 0)
			for range 6 {
				w.record(1)
			}
			if damage {
				w.Put(layout.DataKey(w.at.Position), []byte("junk"))
			}
			r := w.reader(&reader.Options{Concurrency: 1})
			begun := time.Now()
			var mu sync.Mutex // the walk and the renewals make requests side by side
			renewed, gap := begun, time.Duration(0)
			w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case op.Kind == faultstore.Put:
					gap, renewed = max(gap, time.Since(renewed)), time.Now()
				case op.Kind == faultstore.Get && strings.HasPrefix(op.Key, "data/"):
					return faultstore.Fault{ReplyDelay: 25 * time.Second}
				}
				return faultstore.Fault{}
			})
			s, err := r.Snapshot(context.Background(), &reader.SnapshotOptions{TTL: ttl})
			w.Faulty.SetHook(nil)
			mu.Lock()
			gap = max(gap, time.Since(renewed))
			mu.Unlock()
			if took := time.Since(begun); took < 3*ttl || gap > ttl/2 {
				t.Errorf("%s: it took %v, and the pin was not renewed for %v", name, took, gap)
			}
			if damage {
				if !errors.Is(err, reader.ErrCorrupt) {
					t.Errorf("%s: %v", name, err)
				}
			} else if err == nil {
				err = errors.Join(w.check(s, w.now(), 9), s.Err(), s.Close(context.Background()))
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else {
				t.Errorf("%s: %v", name, err)
			}
			if pins := w.Keys(layout.PinPrefix); len(pins) > 0 {
				t.Errorf("%s: pins are left: %q", name, pins)
			}
		})
	}
}

// A pin that is lost while the moment is being found is no snapshot.
func TestPinLostWhileFinding(t *testing.T) {
	inTable(t, 0, func(w *table) {
		for range 6 {
			w.record(1)
		}
		r := w.reader(&reader.Options{Concurrency: 1})
		var puts atomic.Int64
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			switch {
			case op.Kind == faultstore.Get && strings.HasPrefix(op.Key, "data/"):
				return faultstore.Fault{ReplyDelay: 25 * time.Second}
			case op.Kind == faultstore.Put && puts.Add(1) > 2: // the create and the first swap
				return faultstore.Fault{Drop: true, Hang: true}
			}
			return faultstore.Fault{}
		})
		s, err := r.Snapshot(context.Background(), &reader.SnapshotOptions{TTL: 30 * time.Second})
		if !errors.Is(err, reader.ErrPinLost) || s != nil {
			t.Errorf("%v", err)
		}
		if pins := w.Keys(layout.PinPrefix); len(pins) > 0 {
			t.Errorf("pins are left: %q", pins)
		}
	})
}
