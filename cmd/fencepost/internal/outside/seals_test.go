package outside

import (
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
)

// TestManySeals: of the seals before and after the floor together the newest are shown.
func TestManySeals(t *testing.T) {
	f := &follower{slots: slots{seals: map[fence.Epoch]uint64{}}}
	m := &inspect.State{Floor: fence.Position{Epoch: 401, Seq: 1}}
	for e := fence.Epoch(1); e <= 1000; e++ {
		if e <= 400 {
			m.Ends = append(m.Ends, inspect.Header{Slot: fence.Position{Epoch: e, Seq: 7}})
		} else {
			f.slots.seals[e] = 7
		}
	}
	all := f.seals(m)
	if len(all) != maxSeals || all[0].Position.Epoch != 501 || all[maxSeals-1].Position.Epoch != 1000 {
		t.Errorf("%d seals, from %+v on", len(all), all[0])
	}
}
