package compactor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store/faultstore"
)

// guard:same-updater. The first call is stopped while its fold is on the way; the fold lands during the second call.
// Nobody else has the token.
func TestSameTokenAgain(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(3)
	if _, err := w.once(w.Mem, 1, nil); err != nil {
		t.Fatal(err)
	}
	w.Lead(3)
	ctx, cancel := context.WithCancel(context.Background())
	w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.ManifestPrefix, Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{}}}))
	defer cancel()
	updates := func(f func()) func(context.Context, faultstore.Op) {
		return func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.ManifestPrefix) {
				f()
			}
		}
	}
	w.Faulty.SetBefore(updates(func() { time.AfterFunc(10*time.Millisecond, cancel) })) // it hangs until then
	c := w.withToken(w.Faulty, 1, small())
	_, err := c.Once(ctx)
	if err == nil {
		t.Fatal("it was not stopped")
	}
	w.Faulty.SetHook(nil)
	landed := 0
	w.Faulty.SetBefore(updates(func() { landed += w.Faulty.Release(context.Background(), nil) }))
	// Making a plan in between changes nothing.
	if _, err := c.Plan(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err = c.Once(context.Background())
	if err != nil {
		t.Errorf("again: %v", err)
	}
	if landed != 1 {
		t.Errorf("%d updates landed late", landed)
	}
}
