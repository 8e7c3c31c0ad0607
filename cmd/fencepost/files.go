package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

func (a *app) filesCmd() *cobra.Command {
	var version, offset uint64
	var before time.Time
	c := &cobra.Command{
		Use:   "files [--at VERSION | --offset N | --time TIME] [--json] URL",
		Short: "print the live files of the table, now or at a time",
		Long: `Files prints the live files of the table, one per line: key, bytes, records. With
--json it prints one document, with the version, the end offset, the producer's cursor
and the table's properties besides.

The table is that at the end of the log. --at takes it from a version of the manifest
that is still kept, --offset and --time from a place in the history. If that cannot be
read any more, the error says what can.

It needs the right to read.

` + times,
		Example: "fencepost files --time 1d s3://bucket/orders",
		Args:    wantArgs(1, 1),
	}
	fl := c.Flags()
	fl.Uint64Var(&version, "at", 0, "version of the manifest")
	fl.Uint64Var(&offset, "offset", 0, "after so many records")
	timeVar(fl, &before, "time", "before the first later record")
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var at reader.Moment
		switch byVersion, byOffset, byTime := fl.Changed("at"), fl.Changed("offset"), fl.Changed("time"); {
		case byVersion && byOffset, byVersion && byTime, byOffset && byTime:
			return usage("only one of --at, --offset and --time")
		case byVersion && version == 0:
			return usage("--at is 0; versions begin at 1")
		case byVersion:
			at = reader.AtVersion(version)
		case byOffset:
			at = reader.AtOffset(offset)
		}
		r, err := a.reader(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if fl.Changed("time") {
			offset, err := r.After(cmd.Context(), before)
			if err != nil {
				return err
			}
			at = reader.AtOffset(offset)
		}
		s, err := a.snapshot(cmd.Context(), r, at, "files")
		if err != nil {
			return err
		}
		defer a.release(cmd.Context(), s)
		return a.files(cmd.Context(), s)
	}
	return c
}

// tableDoc is what files --json prints.
type tableDoc struct {
	Version uint64 `json:"version"`
	First   uint64 `json:"first"`
	End     uint64 `json:"end"`
	// Cursor is omitted if it is not known.
	Cursor     *[]byte           `json:"cursor,omitempty"`
	Properties map[string]string `json:"properties"`
	Files      []manifest.File   `json:"files"`
}

func (a *app) files(ctx context.Context, s *reader.Snapshot) error {
	if a.json {
		doc := tableDoc{Version: s.Version(), First: s.First(), End: s.End(), Properties: s.Properties(), Files: []manifest.File{}}
		if c, ok := s.Cursor(); ok {
			doc.Cursor = &c
		}
		if doc.Properties == nil {
			doc.Properties = map[string]string{}
		}
		for f, err := range s.Files(ctx) {
			if err != nil {
				return err
			}
			doc.Files = append(doc.Files, f)
		}
		return a.print(doc)
	}
	return a.stream(func(out *bufio.Writer) error {
		for f, err := range s.Files(ctx) {
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(out, "%s\t%d\t%d\n", f.Key, f.Size, f.Records); err != nil {
				return err
			}
		}
		return nil
	})
}
