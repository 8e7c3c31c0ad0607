package backup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// TestPutBackBesideSleepers: an opener, a compactor or a reader sleeps before one of its requests, for each of them. Meanwhile the log
// lives on and is pruned, and repairs that came late put back all objects that a backup has, in the places from which they were pruned.
func TestPutBackBesideSleepers(t *testing.T) {
	log := logtest.New(t, logtest.Format(), nil)
	l := begun(t, log.Mem)
	old := log.Objects()
	var read []string
	acts := map[string]func(ctx context.Context, st store.Store, epoch fence.Epoch) error{
		"a reader": func(_ context.Context, st store.Store, _ fence.Epoch) (err error) {
			read, err = logtest.Read(st, 0, nil)
			return err
		},
		"an opener": func(ctx context.Context, st store.Store, epoch fence.Epoch) error {
			w, err := writer.Open(ctx, st, fence.NewToken(epoch+1), nil)
			if err != nil {
				return err
			}
			_, err = w.Append(ctx, [][]byte{[]byte("zombie\n")})
			return errors.Join(err, w.Close(ctx))
		},
		"a compactor": func(ctx context.Context, st store.Store, epoch fence.Epoch) error {
			c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(epoch + 1)})
			if err == nil {
				_, err = c.Once(ctx)
			}
			return err
		},
	}
	for name, act := range acts {
		met := 0
		for n := int64(1); ; n++ {
			f := log.Fork(t, nil)
			l := &life{t: t, st: f.Mem, epoch: l.epoch, n: 1000}
			zombie := l.epoch
			var requests atomic.Int64
			var want []string
			slow := faultstore.New(f.Mem, nil)
			slept := slow.BeforeFirst(func(faultstore.Op) bool { return requests.Add(1) == n }, func(context.Context) {
				l.epoch++
				for range 3 {
					l.lead()
					l.compact()
				}
				l.lead()
				want = contents(t, f.Mem)
				for key, body := range old {
					kind := layout.KindOf(key)
					if !f.Has(key) && (kind == layout.KindData || kind == layout.KindManifest) {
						fixture.Put(t, f.Mem, key, body)
					}
				}
			})
			err := act(t.Context(), slow, zombie)
			if !slept() {
				break
			}
			met++
			what := fmt.Sprintf("%s, asleep before request %d (%v)", name, n, err)
			if err != nil && !errors.Is(err, fence.ErrFenced) {
				t.Error(what)
			}
			if name == "a reader" && (len(read) > len(want) || !slices.Equal(read, want[:len(read)])) {
				t.Errorf("%s: it reads %q, and the log has %q", what, read, want)
			}
			whole(t, f.Mem, &verify.Options{})
			l.epoch += 5
			l.lead()
			l.compact()
			whole(t, f.Mem, &verify.Options{})
			if got := contents(t, f.Mem); len(got) != len(want)+3 || !slices.Equal(got[:len(want)], want) {
				t.Errorf("%s: then the log has %d records, want %d", what, len(got), len(want)+3)
			}
		}
		if met < 5 {
			t.Errorf("%s sends %d requests", name, met)
		}
	}
}
