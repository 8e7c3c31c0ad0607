package dirstore

import (
	"context"
	"net/url"
	"path/filepath"

	"github.com/fencepost/fencepost/store"
)

func init() {
	store.Register("file", func(_ context.Context, u *url.URL) (store.Store, error) {
		dir, opts, err := parseURL(u)
		if err != nil {
			return nil, err
		}
		// Not returned directly: a nil *Store is not a nil store.Store.
		st, err := Open(dir, opts)
		if err != nil {
			return nil, err
		}
		return st, nil
	})
}

// parseURL reads file:///absolute/dir?create=false.
func parseURL(u *url.URL) (dir string, _ *Options, _ error) {
	bad := func(hint string) (string, *Options, error) {
		return "", nil, &store.Error{Kind: store.ErrInvalid, Hint: hint}
	}
	switch {
	case u.Opaque != "", u.Host != "" && u.Host != "localhost":
		return bad("a relative directory cannot be written as a URL; write file:///absolute/dir, with three slashes")
	case u.User != nil:
		return bad("a directory takes no user name")
	case !filepath.IsAbs(u.Path):
		return bad("the URL names no directory; write file:///absolute/dir")
	case u.Fragment != "":
		return bad(`"#" in a directory's name is written %23`)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad(`the query cannot be read; "?" in a directory's name is written %3F`)
	}
	opts := new(Options)
	for name, values := range query {
		switch {
		case name != "create":
			return bad(`unknown parameter "` + name + `"; the only one is create=false`)
		case len(values) != 1, values[0] != "true" && values[0] != "false":
			return bad("create is true or false")
		}
		opts.NoCreate = values[0] == "false"
	}
	return u.Path, opts, nil
}
