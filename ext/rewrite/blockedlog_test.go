package rewrite_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// A rewriter whose log blocks for ever merges files, and ends.
func TestRewriteWithABlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(t)
		l.add(20, 0)
		r := l.rewriter(nil, &rewrite.Options{MinFiles: 4, Clock: clock.Go(), Logger: fixture.BlockedLog(t)})
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		_ = r.Run(ctx)
		if files := l.want(20); len(files) >= 20 {
			t.Errorf("there are still %d files", len(files))
		}
		l.Close(l.w)
	})
}
