package leader_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestMeasureSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []time.Duration{0, time.Hour, -90 * time.Second} {
			mem := memstore.New(&memstore.Options{Clock: &nodeClock{rate: 1, wall: ahead}})
			skew, err := leader.MeasureSkew(t.Context(), mem)
			if err != nil {
				t.Fatal(err)
			}
			if off := (skew.Offset - ahead).Abs(); off > skew.Uncertainty+time.Second || skew.Uncertainty > time.Second {
				t.Errorf("the store is %v ahead, measured %v", ahead, skew)
			}
			if n, _ := mem.Len(); n != 0 {
				t.Errorf("%d objects are left behind", n)
			}
		}
	})
}
