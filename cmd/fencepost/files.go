package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

func (a *app) filesCmd() *cobra.Command {
	var version uint64
	c := &cobra.Command{
		Use:   "files [--at VERSION] [--json] URL",
		Short: "print the live files of the table, now or in a version",
		Long: `Files prints the live files of the table, one per line: key, bytes, records. With
--json it prints one document, with the version, the end offset, the producer's cursor
and the table's properties besides.

The table is that at the end of the log. --at takes it from a version of the manifest
that is still kept. If that cannot be read any more, the error says what can.

It needs the right to read.`,
		Example: "fencepost files --at 12 s3://bucket/orders",
		Args:    wantArgs(1, 1),
	}
	fl := c.Flags()
	fl.Uint64Var(&version, "at", 0, "version of the manifest")
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if fl.Changed("at") && version == 0 {
			return usage("--at is 0; versions begin at 1")
		}
		r, err := a.reader(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		s, err := a.snapshot(cmd.Context(), r, version, "files")
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
	Version    uint64            `json:"version"`
	First      uint64            `json:"first"`
	End        uint64            `json:"end"`
	Cursor     []byte            `json:"cursor"`
	CursorText string            `json:"cursor_text,omitempty"`
	Properties map[string]string `json:"properties"`
	Files      []manifest.File   `json:"files"`
}

func (a *app) files(ctx context.Context, s *reader.Snapshot) error {
	if a.json {
		doc := tableDoc{Version: s.Version(), First: s.First(), End: s.End(), Cursor: s.Cursor(), CursorText: survey.Text(s.Cursor()), Properties: s.Properties(), Files: []manifest.File{}}
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
