package delta_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/faultstore"
)

// A publisher whose log blocks for ever publishes what can be published, and ends.
func TestPublishWithABlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 2)
		*breakable(&sources[0]) = faultstore.ErrDenied // it is told that this one is left out
		commitEdit(t, all[0])
		commitEdit(t, all[1])
		p := open(t, root, sources, &delta.Options{Logger: fixture.BlockedLog(t)})
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		_ = p.Run(ctx)
		if r := round(t, p, 0); r.Files != 1 {
			t.Errorf("%+v", r)
		}
	})
}
