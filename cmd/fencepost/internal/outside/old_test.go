package outside_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestOldAfterDenied: who leads is shown as it was when it cannot be read any more, although the store answers that. It
// goes on with time when something else cannot be read.
func TestOldAfterDenied(t *testing.T) {
	for _, prefix := range []string{"", layout.LockPrefix, layout.ManifestPrefix, layout.PinPrefix} {
		logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
			lead(t, l.Mem, "ann").append(t, 3)
			st := &denied{Store: l.Mem, prefix: prefix}
			st.off.Store(true)
			watching(t, 12, st, func(h *outside.Hub, _ *atomic.Int64) {
				time.Sleep(5 * time.Minute)
				if s := state(h); s.Now.Sub(s.Read) > time.Minute {
					t.Errorf("all was read at %v, now it is %v", s.Read, s.Now)
				}
				st.off.Store(false)
				time.Sleep(3 * time.Hour)
				s := state(h)
				// What is shown of the leader goes on until Read.
				old := s.Now.Sub(s.Read) > time.Hour
				if old != (prefix == "" || prefix == layout.LockPrefix) || len(s.Log.Terms) == 0 || s.Log.Terms[0].Holder != "ann" || !s.Log.Terms[0].Leads || s.Err == "" {
					t.Errorf("%q is denied: read at %v, now it is %v, error %q, %+v", prefix, s.Read, s.Now, s.Err, s.Log.Terms)
				}
				st.off.Store(true)
				time.Sleep(5 * time.Minute)
				if s := state(h); s.Now.Sub(s.Read) > time.Minute || s.Err != "" {
					t.Errorf("all was read at %v, now it is %v, error %q", s.Read, s.Now, s.Err)
				}
			})
		})
	}
}

// TestOldGroup: when a group was read is known also while nothing in it changes, and while its store denies access.
func TestOldGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		defer join(t, mem, "ann")()
		st := &denied{Store: mem}
		st.off.Store(true)
		watching(t, 12, st, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Hour)
			if s := state(h); s.Group == nil || s.Now.Sub(s.Read) > 3*time.Minute {
				t.Errorf("it was read at %v, now it is %v", s.Read, s.Now)
			}
			st.off.Store(false)
			time.Sleep(time.Hour)
			if s := state(h); s.Group == nil || s.Now.Sub(s.Read) < 55*time.Minute || s.Err == "" {
				t.Errorf("it was read at %v, now it is %v, error %q", s.Read, s.Now, s.Err)
			}
		})
	})
}
