package delta

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
)

// A commit that does not fit the state says why, and which file it is about.
func TestActionsThatDoNotFit(t *testing.T) {
	there := small().files["1/a.parquet"]
	other := *there
	other.log = fence.ID{2}.String()
	bare := there.add(true)
	bare.Tags = nil
	away := there.add(true)
	away.Path = "../x"
	for says, a := range map[string]action{
		"two logs write below one name": {Add: other.add(true)},
		"by another program":            {Add: bare},
		"lies outside":                  {Add: away},
		"is not active":                 {Remove: &remove{Path: "1/none"}},
	} {
		if _, err := small().after([]action{a}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	s := small()
	if p, err := s.after([]action{{Add: there.add(true)}}); err != nil || p != s.proof() {
		t.Errorf("the same file again: %v, %v", p, err)
	}
}
