//go:build integration

package integration

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store"
)

// requests sends one request of each kind and returns the errors.
func requests(t *testing.T, st store.Store) map[string]error {
	_, put := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	_, get := st.Get(t.Context(), "k", nil)
	var list error
	for _, err := range st.List(t.Context(), "", nil) {
		list = errors.Join(list, err)
	}
	return map[string]error{"put": put, "get": get, "list": list}
}

func TestMissingBucketIsNamed(t *testing.T) {
	onEach(t, servers.Conforming, func(t *testing.T, s *servers.Server) {
		s.Bucket = "no-such-bucket"
		for op, err := range requests(t, open(t, s.URL("orders"))) {
			if !errors.Is(err, store.ErrNoBucket) || !strings.Contains(err.Error(), s.Bucket) {
				t.Errorf("%s: %v does not say that there is no bucket %s", op, err, s.Bucket)
			}
		}
	})
}

func TestWrongSecretIsDenied(t *testing.T) {
	// gofakes3 checks no signature.
	onEach(t, []*servers.Kind{servers.VersityGW, servers.MinIO}, func(t *testing.T, s *servers.Server) {
		const wrong = "this-is-not-the-secret"
		t.Setenv("AWS_SECRET_ACCESS_KEY", wrong)
		for op, err := range requests(t, open(t, s.URL("orders"))) {
			if !errors.Is(err, store.ErrDenied) {
				t.Errorf("%s: %v, want %v", op, err, store.ErrDenied)
			}
			if err != nil && strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: the error shows the secret: %v", op, err)
			}
		}
	})
}

// TestDeadServerTellsNothing: a write to a server that is down has an unknown outcome. It
// is settled when the server is back.
func TestDeadServerTellsNothing(t *testing.T) {
	// After a restart of gofakes3 its bucket is gone.
	onEach(t, []*servers.Kind{servers.VersityGW, servers.MinIO}, func(t *testing.T, s *servers.Server) {
		st := open(t, s.URL("orders"))
		s.Kill()
		_, err := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
		if err == nil || store.OutcomeOf(err) != store.Unknown {
			t.Errorf("outcome %v of %v, want unknown", store.OutcomeOf(err), err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := store.Create(t.Context(), st, "k", []byte("v"), nil)
			done <- err
		}()
		s.Restart()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
