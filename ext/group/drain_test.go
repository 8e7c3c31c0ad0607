package group_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// An operator drains workers, among them the one that organises.
func TestDrain(t *testing.T) {
	inWorld(t, 60, func(w *world) {
		all := w.workers(3)
		w.whole(2*time.Minute, all...)
		time.Sleep(time.Minute)
		opts := &group.Options{Clock: clock.Go()}
		var members []group.Member
		for s, err := range group.Observe(w.Context(), w.mem, opts) {
			if err != nil {
				t.Fatal(err)
			}
			members = s.Members
			break
		}
		for i, m := range members[:2] {
			w.mu.Lock()
			w.gaps = nil
			w.mu.Unlock()
			for range 2 { // the second time does no harm
				if err := group.Drain(w.Context(), w.mem, m.Name, opts); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			left := drained(w, all, m.Identity)
			if took := time.Since(begin); len(left) != 1 || left[0] != nil || took > validity {
				t.Errorf("member %d ended with %v after %v", i, left, took)
			}
			// Its worker joins again, as another member.
			w.whole(time.Minute, all...)
			w.mu.Lock()
			if p99 := quantile(w.gaps, 0.99); p99 > 1500*time.Millisecond || len(w.gaps) < 20 {
				t.Errorf("member %d: %d partitions moved, with gaps of %v", i, len(w.gaps), p99)
			}
			w.mu.Unlock()
			err := group.Drain(w.Context(), w.mem, m.Name, opts)
			fixture.WantErr(t, err, group.ErrNoMember, "is over")
		}
		w.end(all...)
	})
}

// The only member is drained. It has nobody who could tell it.
func TestDrainTheLast(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		x := w.worker("a")
		w.whole(time.Minute, x)
		for s, err := range group.Observe(w.Context(), w.mem, &group.Options{Clock: clock.Go()}) {
			if err != nil {
				t.Fatal(err)
			}
			if err := group.Drain(w.Context(), w.mem, s.Members[0].Name, &group.Options{Clock: clock.Go()}); err != nil {
				t.Fatal(err)
			}
			break
		}
		if left := drained(w, []*worker{x}, "a"); len(left) != 1 || left[0] != nil {
			t.Errorf("it ended with %v", left)
		}
		w.end(x)
	})
}

// TestDrainAtOnce: a member is drained before an assignment names it.
func TestDrainAtOnce(t *testing.T) {
	inWorld(t, 5, func(w *world) {
		a := w.worker("a")
		w.whole(time.Minute, a)
		resume := a.st.Pause() // the organiser
		b := w.worker("b")
		time.Sleep(2 * time.Second) // it has listed, and nobody has named it: it learns of the call when it lists again
		opts := &group.Options{Clock: clock.Go()}
		for s, err := range group.Observe(w.Context(), w.mem, opts) {
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(s.Members, func(m group.Member) bool { return m.Identity == "b" })
			if err := group.Drain(w.Context(), w.mem, s.Members[i].Name, opts); err != nil {
				t.Fatal(err)
			}
			break
		}
		resume()
		if left := drained(w, []*worker{b}, "b"); len(left) != 1 || left[0] != nil {
			t.Errorf("it ended with %v", left)
		}
		w.end(a, b)
	})
}

// drained waits until a worker's session has ended, and returns what its sessions ended with.
func drained(w *world, all []*worker, identity string) (errs []error) {
	w.Helper()
	for begin := time.Now(); time.Since(begin) < 2*time.Minute && len(errs) == 0; time.Sleep(50 * time.Millisecond) {
		for _, x := range all {
			x.mu.Lock()
			if x.name == identity {
				errs = append([]error(nil), x.errs...)
			}
			x.mu.Unlock()
		}
	}
	return errs
}

func TestDrainRefuses(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		ctx, opts := context.Background(), &group.Options{Clock: clock.Go()}
		fixture.WantErr(t, group.Drain(ctx, w.mem, "host/7", opts), group.ErrNoMember, `"host/7" is no name`)
		fixture.WantErr(t, group.Drain(ctx, w.mem, "0123456789abcdef0123456789abcdef", opts), group.ErrNoMember, "there is no group/member/0123")
		if err := group.Drain(ctx, w.mem, "", &group.Options{Renew: -1}); !errors.Is(err, group.ErrOptions) {
			t.Error(err)
		}
		if err := w.mem.Delete(ctx, "group/group.json"); err != nil {
			t.Fatal(err)
		}
		fixture.WantErr(t, group.Drain(ctx, w.mem, "0123456789abcdef0123456789abcdef", opts), group.ErrNoGroup, "check the URL")
	})
}
