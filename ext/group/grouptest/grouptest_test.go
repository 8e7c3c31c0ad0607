package grouptest_test

import (
	"testing"

	"github.com/fencepost/fencepost/ext/group/grouptest"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	grouptest.Run(t, memstore.New(nil))
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	st, err := dirstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	grouptest.Run(t, st)
}
