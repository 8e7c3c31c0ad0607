package cloudtest

import (
	"io"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// Get reads an object whole.
func Get(t testing.TB, st store.Store, key string, opts *store.GetOptions) (string, store.Info, error) {
	t.Helper()
	obj, err := st.Get(t.Context(), key, opts)
	if err != nil {
		return "", store.Info{}, err
	}
	defer obj.Body.Close()
	b, err := io.ReadAll(obj.Body)
	return string(b), obj.Info, err
}

// ListErr lists everything, for the error.
func ListErr(t testing.TB, st store.Store) error {
	t.Helper()
	for _, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			return err
		}
	}
	return nil
}
