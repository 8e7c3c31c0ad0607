package compactor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// The reply to a pin's creation is lost. Before its maker reads the pin, the pin lapses and
// a compactor deletes it, on a log that goes on meanwhile or not. Whatever copies of the
// delete are in flight, none hits the pin that the maker gets in the end.
//
// guard:pin-stillborn. guard:pin-taken.
func TestPinDeletedBeforeItIsKnown(t *testing.T) {
	for name, goesOn := range map[string]bool{"idle": false, "going on": true} {
		t.Run(name, func(t *testing.T) {
			h := &hands{}
			w := newWorld(t, 0, &memstore.Options{Clock: h})
			w.Lead(3)
			w.compact(w.Mem, small())
			o := small()
			o.Clock = h
			comp := &deletes{Store: w.Mem}
			slow := &unanswered{Store: w.Mem}
			slow.meanwhile = func() {
				if goesOn {
					w.Lead(3)
				}
				for range 3 {
					h.advance(time.Hour)
					w.compact(comp, o)
				}
			}
			pin, err := w.logOf(slow).Pin(t.Context(), &state.PinOptions{Name: "backup", Holder: "test"})
			if err != nil {
				t.Fatal(err)
			}
			for _, keys := range comp.pins {
				if err := w.Mem.Delete(t.Context(), keys...); err != nil {
					t.Fatal(err)
				}
			}
			if err := pin.Renew(t.Context()); err != nil {
				t.Errorf("nobody has expired it, and it is told: %v", err)
			}
			w.compact(w.Mem, small())
			w.whole(pin.Manifest(), "with a pin")
			// What was expired before goes when the log has gone on.
			w.Lead(3)
			w.compact(w.Mem, small())
			w.compact(w.Mem, small())
			if left := w.Keys(layout.PinPrefix); len(left) != 1 {
				t.Errorf("%q are left", left)
			}
		})
	}
}

// unanswered applies the first creation of a pin, and does not answer.
type unanswered struct {
	store.Store
	meanwhile func()
}

func (s *unanswered) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := s.Store.Put(ctx, key, body, opts)
	if meanwhile := s.meanwhile; meanwhile != nil && err == nil {
		s.meanwhile = nil
		meanwhile()
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: errors.New("connection reset")}
	}
	return info, err
}

// deletes notes which pins it was told to delete.
type deletes struct {
	store.Store
	pins [][]string
}

func (s *deletes) Delete(ctx context.Context, keys ...string) error {
	if strings.HasPrefix(keys[0], layout.PinPrefix) {
		s.pins = append(s.pins, slices.Clone(keys))
	}
	return s.Store.Delete(ctx, keys...)
}
