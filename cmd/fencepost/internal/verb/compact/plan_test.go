package compact

import (
	"testing"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
)

func TestPlanText(t *testing.T) {
	floor := fence.Position{Epoch: 3, Seq: 17}
	for want, p := range map[string]compactor.Plan{
		"from    manifest 8; floor 3/17, offset 40\nfold    up to 1 object, 99 bytes\n": {
			Version: 8, Floor: floor, FloorOffset: 40, FoldObjects: 1, FoldBytes: 99, Start: 4, Truncate: 4,
		},
		"from    manifest 8; floor 3/17, offset 40\nfold    up to 0 objects, 0 bytes\n" +
			"merge   2 segments, records 5 to 19, 640 bytes\ngive up records 0 to 9\n" +
			"delete  3 × lock, 30 bytes: lock/1.json, lock/2.json, …\ndelete  1 × pin, 7 bytes: pin/x.json\n" +
			"pinned  manifest 6, by pin \"backup\" of me\n": {
			Version: 8, Floor: floor, FloorOffset: 40, Truncate: 10,
			Merges: []compactor.Merge{{Segments: []string{"a", "b"}, First: 5, End: 20, Bytes: 640}},
			Deletes: []compactor.Deletion{
				{Kind: "lock", Count: 3, Bytes: 30, Examples: []string{"lock/1.json", "lock/2.json"}},
				{Kind: "pin", Count: 1, Bytes: 7, Examples: []string{"pin/x.json"}},
			},
			Pins: []manifest.Pin{{Version: 6, Name: "backup", Holder: "me"}},
		},
	} {
		if got := planText(&p); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
