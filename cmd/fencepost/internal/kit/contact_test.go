package kit

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// slow takes its time for what a driver implements besides.
type slow struct{ store.Store }

func (slow) Expiries(context.Context, string) ([]store.Expiry, error) {
	time.Sleep(12 * time.Second)
	return nil, nil
}

func (slow) AbortUploads(_ context.Context, _ string, doomed func(store.Info) bool) (int, error) {
	for range 10 { // these are answers
		time.Sleep(2 * time.Second)
		doomed(store.Info{})
	}
	time.Sleep(12 * time.Second)
	return 0, nil
}

// TestWatchedBesides: no request waits in silence.
func TestWatchedBesides(t *testing.T) {
	for op, ask := range map[string]func(context.Context, *watched) error{
		"read the rules": func(ctx context.Context, w *watched) error { _, err := w.Expiries(ctx, "data/"); return err },
		"list uploads": func(ctx context.Context, w *watched) error {
			_, err := w.AbortUploads(ctx, "data/", func(store.Info) bool { return false })
			return err
		},
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var says []string
				w := &watched{slow{memstore.New(nil)}, newVigil(NewConsole(io.Discard, false, 5*time.Second))}
				w.note = func(format string, _ ...any) { says = append(says, format) }
				if err := ask(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if len(says) != 3 || !strings.Contains(says[2], "answers again") {
					t.Errorf("%q", says)
				}
			})
		})
	}
}

// silent is a store that does not answer.
type silent struct{ store.Store }

func (silent) Get(ctx context.Context, key string, _ *store.GetOptions) (*store.Object, error) {
	<-ctx.Done()
	return nil, &store.Error{Op: "get", Key: key, Err: context.Cause(ctx)}
}

// TestGivenUp: a request that is given up since its sender leads no more says nothing of the store.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var says []string
		w := &watched{silent{memstore.New(nil)}, newVigil(NewConsole(io.Discard, false, 5*time.Second))}
		w.note = func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
		ctx, lose := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { lose(fmt.Errorf("%w: stepped down", leader.ErrDeposed)) })
		_, _ = w.Get(ctx, "tmp/x", nil)
		time.Sleep(time.Minute)
		if len(says) > 0 {
			t.Errorf("%q", says)
		}
	})
}
