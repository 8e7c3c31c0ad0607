package files

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// place is where the files of a table are, as engines name them.
type place struct {
	format manifest.Format
	root   string // the name of the store that has them
}

// placeOf finds out where the files of the log in st are. Given may be nil.
func placeOf(ctx context.Context, st, given store.Store) (place, error) {
	f, err := manifest.ReadFormat(ctx, st, nil)
	if err != nil {
		return place{}, err
	}
	root := st.Traits().Name
	switch {
	case given != nil:
		if err := kit.Fits(ctx, st, &f, given); err != nil {
			return place{}, err
		}
		root = given.Traits().Name
	case f.Files != nil:
		root = f.Files.Store
	}
	return place{f, strings.TrimSuffix(root, "/")}, nil
}

// url is the URL of a file. Nothing in its name has to be escaped.
func (p place) url(key string) string { return p.root + "/" + p.format.FileName(key) }

// path is the name of a file for an engine: of a directory a path, and otherwise the URL.
func (p place) path(key string) string {
	raw := p.url(key)
	if u, err := url.Parse(raw); err == nil && u.Scheme == "file" {
		return u.Path
	}
	return raw
}

// literal makes DuckDB take a name as it is: in a string, and where *, ? and [ are patterns. A folder called day=x is a
// value of the column day for DuckDB too, so the call says that it is not.
var literal = strings.NewReplacer("'", "''", "*", "[*]", "?", "[?]", "[", "[[]")

// form is how files are printed.
type form struct {
	of                   func(p place, f manifest.File) string
	first, between, last string
	none                 error // if there are no files
}

// formNames are the names of the forms, for people.
const formNames = "table, duckdb, paths, urls"

// forms are what files --format takes.
var forms = map[string]form{
	"table": {of: func(_ place, f manifest.File) string { return fmt.Sprintf("%s\t%d\t%d", f.Key, f.Size, f.Records) }, between: "\n", last: "\n"},
	"paths": {of: func(p place, f manifest.File) string { return p.path(f.Key) }, between: "\n", last: "\n"},
	"urls":  {of: func(p place, f manifest.File) string { return p.url(f.Key) }, between: "\n", last: "\n"},
	"duckdb": {
		of:    func(p place, f manifest.File) string { return "'" + literal.Replace(p.path(f.Key)) + "'" },
		first: "read_parquet([", between: ",\n", last: "], hive_partitioning=false)\n",
		none: errors.New("the table has no files, and DuckDB reads no empty list"),
	},
}
