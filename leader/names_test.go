package leader_test

import (
	"testing"

	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/memstore"
)

// An election among the other names of a log is refused: its locks would be taken for manifests, or for positions of consumers.
func TestNamesOfLogs(t *testing.T) {
	st := memstore.New(nil)
	for _, prefix := range []string{"data", "manifest", "manifest/", "consumer", "compactor-lock/x", "group/member", "orders/manifest", "compactors"} {
		_, err := leader.New(st, prefix, nil)
		fixture.WantErr(t, err, leader.ErrOptions, "give the election another prefix")
	}
	for _, prefix := range []string{"lock", "compactor-lock", "orders/lock", "nightly", "jobs/data-import"} {
		if _, err := leader.New(st, prefix, nil); err != nil {
			t.Error(prefix, err)
		}
	}
}
