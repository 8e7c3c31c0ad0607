// Package pin has the verbs pin, unpin and pins.
package pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// Pin returns the verb.
func Pin(k *kit.Kit) *cobra.Command {
	var name string
	var version uint64
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "pin --name NAME [--version V] [--json] URL",
		Short: "keep a version of the log from being deleted",
		Long: `Pin keeps a version of the manifest from being deleted, and with it everything that
the version names: its segments, and the live files of its table. So the history up to
its floor can be copied or read, however long that takes. Records that are not compacted
yet are not in it, and pin says how many: run compact before. The version is the newest,
or another one that is still kept. The pin holds until unpin; with --ttl it lapses by
itself.

It needs the rights of a reader.`,
		Example: "fencepost pin --name backup-2026-11 s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
	}
	fl := c.Flags()
	fl.StringVar(&name, "name", "", "a name for the pin, such as backup-2026-11")
	fl.Uint64Var(&version, "version", 0, "the version (default the newest)")
	kit.SpanVar(fl, &ttl, "ttl", "", manifest.MinPinTTL, "how long the pin holds (default until unpin)")
	k.JSONFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case name == "":
			return kit.Usage("--name is not given; give --name NAME")
		case !utf8.ValidString(name): // JSON would store another name, and unpin would not find it
			return kit.Usage("--name is not UTF-8")
		case fl.Changed("version") && version == 0:
			return kit.Usage("--version is 0; versions begin at 1")
		}
		return hold(cmd.Context(), k, args[0], name, version, ttl)
	}
	return c
}

func hold(ctx context.Context, k *kit.Kit, url, name string, version uint64, ttl time.Duration) error {
	st, err := k.LogStore(ctx, url)
	if err != nil {
		return err
	}
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return err
	}
	p, err := r.Pin(ctx, name, version, ttl)
	if err != nil {
		return err
	}
	if p.Version == 0 {
		letGo(ctx, k, r, &p)
		return errors.New("the log has no manifest yet, so there is nothing to pin: append something, or run `fencepost compact`, and try again")
	}
	// If nobody reads what is printed, the pin stays: the exit status says that it is there.
	if err = pinned(ctx, k, st, r, &p); err != nil && !errors.Is(err, kit.ErrQuiet) {
		letGo(ctx, k, r, &p)
	}
	return err
}

// letGo releases a pin that nobody was told of. One with a time to live lapses by itself.
func letGo(ctx context.Context, k *kit.Kit, r *reader.Reader, p *manifest.Pin) {
	if p.TTL > 0 {
		k.Console.Note("the pin is there, and lapses in %v", p.TTL)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.Timeout)
	defer cancel()
	if err := r.Release(ctx, *p); err != nil {
		k.Console.Note("the pin is there all the same, and could not be released (%s): it holds until `fencepost unpin`", kit.Line(err))
	}
}

// pinned says what a pin keeps, and what it does not.
func pinned(ctx context.Context, k *kit.Kit, st store.Store, r *reader.Reader, p *manifest.Pin) error {
	s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Version: p.Version, Unpinned: true})
	if err != nil {
		return err
	}
	end, edits, err := survey.AfterFloor(ctx, st)
	if err != nil {
		return err
	}
	const advice = "If that is to be kept too, run `fencepost compact`, and pin again"
	switch n := end - s.End(); {
	case n > 0:
		k.Console.Note("not pinned: %s after offset %d, which version %d does not have. %s", kit.Plural(n, "record"), s.End(), p.Version, advice)
	case edits:
		k.Console.Note("not pinned: changes of the table that are not compacted. %s", advice)
	}
	return k.Show(struct {
		Name    string `json:"name"`
		Version uint64 `json:"version"`
		First   uint64 `json:"first"`
		End     uint64 `json:"end"`
		LogEnd  uint64 `json:"log_end"`
		Files   int    `json:"files"`
	}{p.Name, p.Version, s.First(), s.End(), end, s.Live()}, fmt.Appendf(nil, "pinned version %d as %s: %s, %s\n", p.Version, kit.Printable(p.Name), kit.RecordRange(s.First(), s.End()), kit.Plural(s.Live(), "file")))
}

// Unpin returns the verb.
func Unpin(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "unpin [--json] NAME URL",
		Short: "remove pins",
		Long: `Unpin removes all pins of a name. A process that still relies on one learns it at its
next renewal. Later compactions delete what only these pins have kept.

It needs the rights of a reader.`,
		Example: "fencepost unpin backup-2026-11 s3://bucket/orders",
		Args:    kit.WantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return kit.Usage("the name is empty: which pins?")
			}
			r, err := k.Reader(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			err = r.Unpin(cmd.Context(), args[0])
			if errors.Is(err, reader.ErrNoPin) {
				return fmt.Errorf("there is no pin called %s; see `fencepost pins`", kit.Printable(args[0]))
			}
			if err != nil {
				return err
			}
			return k.Show(map[string]string{"unpinned": args[0]}, fmt.Appendf(nil, "unpinned %s\n", kit.Printable(args[0])))
		},
	}
	k.JSONFlag(c)
	return c
}

// Pins returns the verb.
func Pins(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "pins [--json] URL",
		Short: "list the pins",
		Long: `Pins lists all pins: those of the verb pin, and those of processes that read a
snapshot. The latter lapse when they are not renewed.

It needs the right to read.`,
		Example: "fencepost pins s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := k.Reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			pins, err := r.Pins(cmd.Context())
			if err != nil {
				return err
			}
			docs := survey.Pins(pins)
			return k.Show(docs, Table(docs))
		},
	}
	k.JSONFlag(c)
	return c
}

// Table shows pins to people.
func Table(docs []survey.Pin) []byte {
	return kit.Aligned(func(w io.Writer) {
		if len(docs) > 0 {
			fmt.Fprintln(w, "NAME\tVERSION\tSINCE\tLAPSES\tHOLDER")
		}
		for _, d := range docs {
			lapses := "never"
			switch {
			case d.Expired:
				lapses = "lapsed: " + kit.Printable(d.Reason)
			case d.TTL != "":
				lapses = d.TTL + " after " + kit.When(d.Renewed)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", cmp.Or(kit.Printable(d.Name), "-"), d.Version, kit.When(d.Created), lapses, kit.Printable(d.Holder))
		}
	})
}
