package survey

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store/memstore"
)

// aheadBy is a clock whose time of day is wrong.
type aheadBy struct {
	clock.Clock
	ahead time.Duration
}

func (c aheadBy) Wall() time.Time { return c.Clock.Wall().Add(c.ahead) }

func TestMeasureSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{0, time.Hour, -90 * time.Second} {
			mem := memstore.New(&memstore.Options{Clock: aheadBy{clock.Go(), ahead}})
			offset, uncertainty, err := measureSkew(t.Context(), mem, clock.Go())
			if err != nil {
				t.Fatal(err)
			}
			if off := (offset - ahead).Abs(); off > uncertainty+time.Second || uncertainty > time.Second {
				t.Errorf("the store is %v ahead, measured %v ± %v", ahead, offset, uncertainty)
			}
			if n, _ := mem.Len(); n != 0 {
				t.Errorf("%d objects are left", n)
			}
		}
	})
}
