package cloudtest

import (
	"errors"
	"io"
	"strings"
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

func list(t testing.TB, st store.Store, prefix, after string) (keys []string, err error) {
	t.Helper()
	for info, err := range st.List(t.Context(), prefix, &store.ListOptions{StartAfter: after}) {
		if err != nil {
			return keys, err
		}
		if info.Version == "" || info.Size == 0 || info.LastModified.IsZero() || info.Date.IsZero() {
			t.Errorf("%+v", info)
		}
		keys = append(keys, info.Key)
	}
	return keys, nil
}

// Reads puts an object under a/k and reads it, in parts and under conditions. It
// returns the object's version.
func Reads(t *testing.T, st store.Store) store.Version {
	t.Helper()
	put, err := st.Put(t.Context(), "a/k", []byte("0123456789"), &store.PutOptions{If: store.IfAbsent()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset, length int64
		want           string
		err            error
	}{
		{0, 0, "0123456789", nil}, {3, 0, "3456789", nil}, {3, 4, "3456", nil}, {8, 10, "89", nil}, {0, 99, "0123456789", nil},
		{10, 0, "", store.ErrRange}, {10, 5, "", store.ErrRange}, {11, 1, "", store.ErrRange}, {-1, 0, "", store.ErrInvalid},
	} {
		body, info, err := Get(t, st, "a/k", &store.GetOptions{Offset: c.offset, Length: c.length})
		if !errors.Is(err, c.err) || body != c.want || err == nil && (info.Size != 10 || info.Version != put.Version || info.LastModified.IsZero() || info.Date.IsZero()) {
			t.Errorf("%d+%d: got %q, %+v, %v; want %q, %v", c.offset, c.length, body, info, err, c.want, c.err)
		}
	}
	if _, _, err := Get(t, st, "a/k", &store.GetOptions{IfNoneMatch: put.Version}); !errors.Is(err, store.ErrNotModified) {
		t.Errorf("the same version: %v", err)
	}
	if body, _, err := Get(t, st, "a/k", &store.GetOptions{IfNoneMatch: "7"}); err != nil || body != "0123456789" {
		t.Errorf("another version: %q, %v", body, err)
	}
	if _, _, err := Get(t, st, "a/none", nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	return put.Version
}

// Lists lists a store that holds p/1, p/2, p/3 and q/1 besides what is none of its
// objects. again makes the server say for ever that there is more.
func Lists(t *testing.T, st store.Store, again func()) {
	t.Helper()
	sub, err := store.Sub(st, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		st            store.Store
		prefix, after string
		want          string
	}{
		{st, "", "", "p/1 p/2 p/3 q/1"}, {st, "p/", "", "p/1 p/2 p/3"}, {st, "p/", "p/2", "p/3"}, {st, "", "p/3", "q/1"},
		{sub, "", "", "1 2 3"}, {sub, "", "1", "2 3"}, {sub, "", "3", ""},
	} {
		if got, err := list(t, c.st, c.prefix, c.after); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q after %q: %v, %v; want %s", c.prefix, c.after, got, err, c.want)
		}
	}
	again()
	if err := ListErr(t, st); err == nil || !strings.Contains(err.Error(), "says that there is more") {
		t.Errorf("more and more: %v", err)
	}
	// Names from outside never escape a prefix.
	for _, key := range []string{"../q/1", "..", "a/../../q/1", "/q/1"} {
		_, _, err := Get(t, sub, key, nil)
		if !errors.Is(err, store.ErrInvalid) || !errors.Is(sub.Delete(t.Context(), key), store.ErrInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
}
