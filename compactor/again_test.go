package compactor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store/faultstore"
)

// guard:same-updater. The first call is stopped while its fold is on the way; the fold lands during the second call.
// Nobody else has the token.
func TestSameTokenAgain(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.lead(3)
	if _, err := w.once(w.mem, 1, nil); err != nil {
		t.Fatal(err)
	}
	w.lead(3)
	ctx, cancel := context.WithCancel(context.Background())
	w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.ManifestPrefix, Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{}}}))
	defer cancel()
	updates := func(f func()) func(context.Context, faultstore.Op) {
		return func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.ManifestPrefix) {
				f()
			}
		}
	}
	w.faulty.SetBefore(updates(func() { time.AfterFunc(10*time.Millisecond, cancel) })) // it hangs until then
	c := mustNew(t, w.faulty, small())
	_, err := c.Once(ctx, fence.NewToken(1))
	if err == nil {
		t.Fatal("it was not stopped")
	}
	w.faulty.SetHook(nil)
	landed := 0
	w.faulty.SetBefore(updates(func() { landed += w.faulty.Release(context.Background(), nil) }))
	_, err = c.Once(context.Background(), fence.NewToken(1))
	if err != nil {
		t.Errorf("again: %v", err)
	}
	if landed != 1 {
		t.Errorf("%d updates landed late", landed)
	}
}
