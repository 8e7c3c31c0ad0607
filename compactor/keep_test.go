package compactor

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// The mark lies right below the oldest version that is kept: what is above it is kept
// whole. Version 10 is the newest, and each was the newest for an hour.
func TestMarkBelowTheKept(t *testing.T) {
	s := &survey{horizon: &state.Manifest{Version: 10}, kept: map[uint64]state.Kept{}}
	for v := range uint64(10) {
		s.kept[v+1] = state.Kept{Info: store.Info{Key: layout.ManifestKey(v + 1)}}
	}
	age := func(info store.Info) time.Duration {
		v, _ := layout.ParseManifestKey(info.Key)
		return time.Duration(10-v) * time.Hour
	}
	for _, c := range []struct {
		keep KeepVersions
		mark uint64
	}{
		{KeepVersions{}, 10},
		{KeepVersions{Count: 1}, 8},
		{KeepVersions{Count: 3}, 6},
		{KeepVersions{Count: 9}, 0},
		{KeepVersions{Count: 10}, 0},
		{KeepVersions{Age: time.Hour}, 8},
		{KeepVersions{Age: 150 * time.Minute}, 6},
		{KeepVersions{Age: 3 * time.Hour}, 6},
		{KeepVersions{Age: 9 * time.Hour}, 0},
		{KeepVersions{Age: 99 * time.Hour}, 0},
		{KeepVersions{Count: 3, Age: time.Hour}, 6},
		{KeepVersions{Count: 1, Age: 5 * time.Hour}, 4},
	} {
		t.Run(fmt.Sprint(c.keep), func(t *testing.T) {
			p := &pass{Compactor: &Compactor{opts: Options{KeepVersions: c.keep}}}
			if mark := p.keepVersions(s, age); mark != c.mark {
				t.Errorf("the mark is %d, want %d", mark, c.mark)
			}
		})
	}
}
