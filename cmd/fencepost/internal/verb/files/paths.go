package files

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
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

// printer prints the files of a table in one form.
type printer func(out *bufio.Writer, p place, files []manifest.File, end byte) error

// forms are what files --format takes, besides table.
var forms = map[string]printer{
	"paths": func(out *bufio.Writer, p place, files []manifest.File, end byte) error {
		return each(out, files, p.path, end)
	},
	"urls": func(out *bufio.Writer, p place, files []manifest.File, end byte) error {
		return each(out, files, p.url, end)
	},
	"duckdb": func(out *bufio.Writer, p place, files []manifest.File, _ byte) error {
		if len(files) == 0 {
			return errNoFiles
		}
		quoted := make([]string, len(files))
		for i, f := range files {
			quoted[i] = "'" + strings.ReplaceAll(p.path(f.Key), "'", "''") + "'"
		}
		_, err := out.WriteString("read_parquet([" + strings.Join(quoted, ",\n") + "])\n")
		return err
	},
}

var errNoFiles = errors.New("the table has no files, and DuckDB reads no empty list")

func formNames() string {
	return "table, " + strings.Join(slices.Sorted(maps.Keys(forms)), ", ")
}

func each(out *bufio.Writer, files []manifest.File, name func(string) string, end byte) error {
	for _, f := range files {
		if _, err := out.WriteString(name(f.Key) + string(rune(end))); err != nil {
			return err
		}
	}
	return nil
}

// printFiles prints all files of a snapshot.
func printFiles(ctx context.Context, k *kit.Kit, s *reader.Snapshot, p place, form printer, end byte) error {
	var all []manifest.File
	for f, err := range s.Files(ctx) {
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	return k.Stream(func(out *bufio.Writer) error { return form(out, p, all, end) })
}
