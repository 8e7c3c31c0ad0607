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
		count int
		age   time.Duration
		mark  uint64
	}{
		{0, 0, 10},
		{1, 0, 8},
		{3, 0, 6},
		{9, 0, 0},
		{10, 0, 0},
		{0, time.Hour, 8},
		{0, 150 * time.Minute, 6},
		{0, 3 * time.Hour, 6},
		{0, 9 * time.Hour, 0},
		{0, 99 * time.Hour, 0},
		{3, time.Hour, 6},
		{1, 5 * time.Hour, 4},
	} {
		t.Run(fmt.Sprint(c.count, c.age), func(t *testing.T) {
			p := &pass{Compactor: &Compactor{opts: Options{KeepVersions: c.count, KeepVersionsFor: c.age}}}
			if mark := p.keepVersions(s, age); mark != c.mark {
				t.Errorf("the mark is %d, want %d", mark, c.mark)
			}
		})
	}
}
