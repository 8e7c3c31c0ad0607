package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

func TestCheckKey(t *testing.T) {
	for _, key := range []string{
		"a", "data/00000000000000000001/00000000000000000002", "tmp/b5c1.json", "a b/ü+%3d&=?#", "...", "a/..b", strings.Repeat("k", store.MaxKey),
	} {
		if err := store.CheckKey("put", key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "./a", `a\b`, "a\x00", "a\nb", "a\x7f", "\xff", "a/\xc3", "a\u0085b", "a\ufffeb", "a\uffff",
		strings.Repeat("k", store.MaxKey+1),
	} {
		err := store.CheckKey("put", key)
		var e *store.Error
		if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &e) || e.Op != "put" || e.Key != key || e.Hint == "" {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestCheckPrefix(t *testing.T) {
	for _, prefix := range []string{"", "a/", "a/b/"} {
		if err := store.CheckPrefix("list", prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"a", "/", "a//", "../", "a/../"} {
		if err := store.CheckPrefix("list", prefix); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}
