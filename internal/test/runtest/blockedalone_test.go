package runtest_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/writer"
)

// Each part alone, with a log that blocks for ever, does its work and ends. The parts in Run are in blockedlog_test.go, the extensions have
// a test each.
func TestEachPartWithABlockedLog(t *testing.T) {
	for name, work := range map[string]func(ctx context.Context, l *logtest.Log, log *zap.Logger) error{
		"writer": func(ctx context.Context, l *logtest.Log, log *zap.Logger) error {
			w := l.Open(&writer.Options{Settle: logtest.Quick, Clock: clock.Go(), Logger: log})
			for _, value := range []string{"a", "b", "c"} {
				l.Append(w, value)
			}
			return w.Close(ctx)
		},
		"compactor": func(ctx context.Context, l *logtest.Log, log *zap.Logger) error {
			l.Lead(9)
			c, err := compactor.New(l.Mem, &compactor.Options{MinObjects: 1, Interval: time.Second, Settle: logtest.Quick, Clock: clock.Go(), Logger: log})
			if err != nil {
				return err
			}
			ctx, stop := context.WithTimeout(ctx, 10*time.Minute)
			defer stop()
			_ = c.Run(ctx)
			if l.Newest().Floor.Offset == 0 {
				t.Error("nothing is folded")
			}
			return nil
		},
		"leader": func(ctx context.Context, l *logtest.Log, log *zap.Logger) error {
			for _, name := range []string{"one", "two"} {
				e, err := leader.New(l.Mem, "jobs/", &leader.Options{Identity: name, Clock: clock.Go(), Logger: log})
				if err != nil {
					return err
				}
				term, err := e.Campaign(ctx)
				if err != nil {
					return err
				}
				time.Sleep(5 * time.Minute)
				if err := term.Resign(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			logtest.Bubble(t, logtest.Format(), func(t *testing.T, l *logtest.Log) {
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				if err := work(ctx, l, fixture.BlockedLog(t)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
