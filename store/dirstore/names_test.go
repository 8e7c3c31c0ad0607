package dirstore

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

func TestNames(t *testing.T) {
	for key, want := range map[string]string{
		"a":                      "a",
		"a/b c/%2F":              "a/b c/%2F",
		".fencepost":             ".fencepost%",
		".fencepost/tmp/x":       ".fencepost%/tmp/x",
		".fencepost%":            ".fencepost%%",
		".FencePost%%/lock":      ".FencePost%%%/lock",
		".fenceposts/x":          ".fenceposts/x",
		"a/.fencepost/x":         "a/.fencepost/x",
		strings.Repeat("x", 255): strings.Repeat("x", 255),
	} {
		rel, err := relPath("get", key)
		if err != nil || rel != want {
			t.Errorf("relPath(%q) = %q, %v; want %q", key, rel, err, want)
		}
		if back, ok := keyOf(rel); !ok || back != key {
			t.Errorf("keyOf(%q) = %q, %v; want %q", rel, back, ok, key)
		}
	}
	for _, rel := range []string{".fencepost", ".fencepost/tmp/x", ".FENCEPOST/x", "a\nb", `a\b`, "\xff"} {
		if key, ok := keyOf(rel); ok {
			t.Errorf("keyOf(%q) = %q, want none", rel, key)
		}
	}
	long := "a/" + strings.Repeat("é", 128) + "/b"
	escaped := reserved + strings.Repeat("%", maxName-len(reserved))
	for _, key := range []string{long, escaped, "", "a//b", "../x"} {
		_, err := relPath("put", key)
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("relPath(%.30q…): %v, want %v", key, err, store.ErrInvalid)
		}
	}
	if _, err := relPath("put", long); !strings.Contains(err.Error(), "255") {
		t.Errorf("the error does not say how long a part may be: %v", err)
	}
	if rel, err := relDir("list", ".fencepost/"); err != nil || rel != ".fencepost%" {
		t.Errorf("relDir of the reserved name = %q, %v", rel, err)
	}
}

// FuzzNames: no two keys share a path, none leaves the root or enters the
// reserved folder.
func FuzzNames(f *testing.F) {
	f.Add("a/b")
	f.Add(".fencepost%/x")
	f.Add(".FENCEPOST")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, key string) {
		rel, err := relPath("get", key)
		if err != nil {
			return
		}
		if back, ok := keyOf(rel); !ok || back != key {
			t.Errorf("keyOf(relPath(%q)) = %q, %v", key, back, ok)
		}
		top, _, _ := strings.Cut(rel, "/")
		if !filepath.IsLocal(rel) || strings.EqualFold(top, reserved) {
			t.Errorf("relPath(%q) = %q", key, rel)
		}
	})
}

// A URL names an absolute directory, or is refused.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"file:///dir", "file://localhost/dir?create=false", "file:dir", "file://host/dir", "file:///", "file:///a%2f..%2fb",
		"file:///dir?create=maybe", "file:///dir?create=true&create=true", "file:///dir#x", "file://user:secret@/x", "file:///dir?%zz",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		dir, opts, err := parseURL(u)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) || dir != "" || opts != nil {
				t.Errorf("%q: %q, %v, %v", raw, dir, opts, err)
			}
			return
		}
		if !filepath.IsAbs(dir) || opts == nil || u.User != nil || u.Fragment != "" {
			t.Errorf("%q is %q, %+v", raw, dir, opts)
		}
	})
}
