//go:build integration

package integration

import (
	"testing"

	"github.com/fencepost/fencepost/integration/servers"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/storetest"
)

// What each server is known to lack, so that the suite asks for all the rest.
//
// versitygw reads an object's version before it opens its body, and the body may
// be of a later write. It and MinIO list by walking a directory: a walk that
// runs while the newest name is deleted and a newer one created can miss both.
// gofakes3 ignores the condition on the completion of an upload, and says
// another version there than later.
var lacks = map[*servers.Kind]storetest.Options{
	servers.VersityGW: {OldVersions: true, LooseListing: true},
	servers.MinIO:     {LooseListing: true},
	servers.GoFakeS3:  {UploadOverwrites: true, UploadVersions: true},
}

func TestStoreOnRealServers(t *testing.T) {
	for _, kind := range servers.Conforming {
		s := servers.Start(t, kind) // sets the environment, which a parallel test may not
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel() // it waits for disks and pauses
			opts := lacks[kind]
			opts.Quick = testing.Short()
			storetest.Run(t, func(tb storetest.TB) store.Store {
				// Each client opens connections of its own.
				st, err := store.Open(tb.Context(), s.URL("storetest"))
				if err != nil {
					tb.Fatalf("open: %v", err)
				}
				return st
			}, &opts)
		})
	}
}
