// Package files is the verb files.
package files

import (
	"bufio"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	l := &listing{Kit: k}
	c := &cobra.Command{
		Use:   "files [--at VERSION] [--format FORM] [--pin NAME] [--json] URL",
		Short: "print the live files of the table, now or in a version",
		Long: `Files prints the live files of the table, one per line: key, bytes, records. With
--json it prints one document, with the version, the end offset, the producer's cursor
and the table's properties besides.

With --format the names are in a form that engines take: paths prints a path or a URL
on each line, urls a URL on each, duckdb a call of DuckDB's read_parquet. With -0 a NUL
byte ends each, for xargs -0.

The files stay while files runs, and for the log's grace period after an edit removes
them. --pin holds them until fencepost unpin NAME, or for --ttl.

The table is that at the end of the log. --at takes it from a version of the manifest
that is still kept. If that cannot be read any more, the error says what can.

It needs the right to read. --pin needs the rights of a reader.`,
		Example: "fencepost files --at 12 s3://bucket/orders\n  duckdb -c \"select count(*) from $(fencepost files --format duckdb --pin q --ttl 1h URL)\"",
		Args:    kit.WantArgs(1, 1),
	}
	fl := c.Flags()
	fl.Uint64Var(&l.version, "at", 0, "version of the manifest")
	fl.StringVar(&l.form, "format", "table", formNames)
	fl.BoolVarP(&l.null, "null", "0", false, "end each path with a NUL byte")
	fl.StringVar(&l.pin, "pin", "", "hold the files under this name")
	kit.SpanVar(fl, &l.ttl, "ttl", "", manifest.MinPinTTL, "how long --pin holds (default until unpin)")
	k.FilesFlag(c)
	k.JSONFlag(c)
	kit.Needs(c, "pin", "ttl")
	kit.Excludes(c, "json", "format")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if fl.Changed("at") && l.version == 0 {
			return kit.Usage("--at is 0; versions begin at 1")
		}
		return l.run(cmd.Context(), args[0])
	}
	return c
}

// listing is what the flags of files say.
type listing struct {
	*kit.Kit
	version uint64
	form    string
	null    bool
	pin     string
	ttl     time.Duration
}

func (l *listing) run(ctx context.Context, raw string) error {
	f, known := forms[l.form]
	switch {
	case !known:
		return kit.Usage("--format is one of %s, not %q", formNames, l.form)
	case l.null && f.first != "", l.null && l.form == "table":
		return kit.Usage("-0 goes with --format paths or urls")
	case l.null:
		f.between, f.last = "\x00", "\x00"
	}
	st, err := l.LogStore(ctx, raw)
	if err != nil {
		return err
	}
	second, err := l.Files(ctx, false)
	if err != nil {
		return err
	}
	p, err := placeOf(ctx, st, second)
	if err != nil {
		return err
	}
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return err
	}
	// Before the snapshot: what the pinned version and all later ones name stays.
	if l.pin != "" {
		if _, err := r.Pin(ctx, l.pin, l.version, l.ttl); err != nil {
			return err
		}
	}
	s, err := l.Snapshot(ctx, r, l.version, "files")
	if err != nil {
		return err
	}
	defer l.Release(ctx, s)
	return l.print(ctx, s, p, f)
}

// TableDoc is what files --json prints.
type TableDoc struct {
	Version    uint64            `json:"version"`
	First      uint64            `json:"first"`
	End        uint64            `json:"end"`
	Cursor     []byte            `json:"cursor"`
	CursorText string            `json:"cursor_text,omitempty"`
	Properties map[string]string `json:"properties"`
	Files      []fileDoc         `json:"files"`
}

// fileDoc is a file, and where it is.
type fileDoc struct {
	manifest.File
	URL string `json:"url"`
}

// print prints the files of a snapshot when it knows all: half of a list would look whole.
func (l *listing) print(ctx context.Context, s *reader.Snapshot, p place, form form) error {
	var all []manifest.File
	for f, err := range s.Files(ctx) {
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	if l.JSON {
		doc := TableDoc{Version: s.Version(), First: s.First(), End: s.End(), Cursor: s.Cursor(), CursorText: survey.Text(s.Cursor()), Properties: s.Properties(), Files: []fileDoc{}}
		if doc.Properties == nil {
			doc.Properties = map[string]string{}
		}
		for _, f := range all {
			doc.Files = append(doc.Files, fileDoc{f, p.url(f.Key)})
		}
		return l.Print(doc)
	}
	if len(all) == 0 {
		return form.none
	}
	return l.Stream(func(out *bufio.Writer) error {
		before := form.first
		for _, f := range all {
			if _, err := out.WriteString(before + form.of(p, f)); err != nil {
				return err
			}
			before = form.between
		}
		_, err := out.WriteString(form.last)
		return err
	})
}
