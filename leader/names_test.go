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

// A log may be in a place with any name: who leads there can be read, and somebody can lead.
func TestPlacesOfAnyName(t *testing.T) {
	for _, place := range []string{
		"mem://home/.fencepost/orders", "mem://b/.fencepost-prod/orders", "mem://b/group/member", "mem://b/group/call", "mem://b/group/ready/orders", "mem://b/file/_delta_log", "mem://b/data/1", "mem://b/manifest", "mem://b/partition/000001",
	} {
		for _, prefix := range []string{"lock", "compactor-lock"} {
			if _, err := leader.New(memstore.New(&memstore.Options{Name: place}), prefix, nil); err != nil {
				t.Errorf("%s, %s: %v", place, prefix, err)
			}
		}
	}
}
