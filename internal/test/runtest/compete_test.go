package runtest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// Several processes copy one source into the log, and each continues where the cursor
// says. At random they lose their terms, freeze, and are replaced. In the end each record
// is in the log once and in order.
func TestRunsCompete(t *testing.T) {
	for seed := range uint64(6) {
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			const total = 400
			rng := rand.New(rand.NewPCG(seed, 0))
			w.Faulty.SetRates(faultstore.Rates{MaxDelay: 40 * time.Millisecond, LoseReply: 0.02, Echo: 0.01, Late: 0.01, Fail: 0.02})
			copying := func(ctx context.Context, s *fencepost.Session) error {
				next, _ := strconv.Atoi(string(s.Recovered().Cursor))
				for ; next < total; next++ {
					cursor := writer.Cursor([]byte(strconv.Itoa(next + 1)))
					if _, err := s.AppendAsync(ctx, [][]byte{[]byte(strconv.Itoa(next))}, cursor); err != nil {
						return err
					}
					if err := clock.Sleep(ctx, clock.Go(), 100*time.Millisecond); err != nil {
						return err
					}
				}
				return s.Flush(ctx)
			}
			nodes := map[string]*runtest.Node{}
			for _, name := range []string{"a", "b", "c"} {
				nodes[name] = w.Start(name, runtest.Options(name), copying)
			}
			e := w.Elector()
			for range 12 {
				time.Sleep(time.Duration(1+rng.IntN(8)) * time.Second)
				switch rng.IntN(3) {
				case 0:
					_, _ = e.StepDown(w.Context(), &leader.StepDownOptions{Immediate: rng.IntN(2) == 0})
				case 1: // all heartbeats are lost for a while
					w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
						if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "lock/") {
							return faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}
						}
						return faultstore.Fault{}
					})
					time.Sleep(20 * time.Second)
					w.Faulty.SetHook(nil)
				case 2: // a process is replaced
					name := string("abc"[rng.IntN(3)])
					nodes[name].Cancel(runtest.ErrStop)
					if err := w.Ends(nodes[name]); err != nil && !errors.Is(err, runtest.ErrStop) {
						w.Errorf("seed %d: %s ended with %v", seed, name, err)
					}
					nodes[name] = w.Start(name, runtest.Options(name), copying)
				}
			}
			for name, n := range nodes {
				if err := w.Ends(n); err != nil && !errors.Is(err, writer.ErrUnknown) {
					w.Errorf("seed %d: %s ended with %v", seed, name, err)
				}
			}
			w.Faulty.SetRates(faultstore.Rates{})
			w.Faulty.Release(context.Background(), nil)
			var want []string
			for i := range total {
				want = append(want, strconv.Itoa(i))
			}
			if got := w.Contents(); !slices.Equal(got, want) {
				w.Errorf("seed %d: %d records %q", seed, len(got), got)
			}
		})
	}
}
