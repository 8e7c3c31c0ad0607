package cloudtest

import (
	"fmt"
	"io"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
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

// SmallPages lists with pages as small as it asks for.
func SmallPages(t *testing.T, st store.Store) {
	t.Helper()
	for i := range 7 {
		if _, err := st.Put(t.Context(), fmt.Sprintf("small/%d", i), []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, pages := cloud.Small(t.Context(), 3)
	n := 0
	for info, err := range st.List(ctx, "small/", nil) {
		if want := fmt.Sprintf("small/%d", n); err != nil || info.Key != want {
			t.Fatalf("%s, %v, want %s", info.Key, err, want)
		}
		n++
	}
	if n != 7 || pages() != 3 {
		t.Errorf("%d objects in %d pages, want 7 in 3", n, pages())
	}
}
