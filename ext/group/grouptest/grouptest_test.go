package grouptest_test

import (
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/grouptest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// The drivers of other modules run it in real time, on servers.
func TestStory(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (store.Store, error){
		"memory":    func(*testing.T) (store.Store, error) { return memstore.New(&memstore.Options{Clock: clock.Go()}), nil },
		"directory": func(t *testing.T) (store.Store, error) { return dirstore.Open(t.TempDir(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				grouptest.Run(t, st, clock.Go())
			})
		})
	}
}
