package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

func (a *app) pinCmd() *cobra.Command {
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
		Args:    wantArgs(1, 1),
	}
	fl := c.Flags()
	fl.StringVar(&name, "name", "", "a name for the pin, such as backup-2026-11")
	fl.Uint64Var(&version, "version", 0, "the version (default the newest)")
	spanVar(fl, &ttl, "ttl", "", manifest.MinPinTTL, "how long the pin holds (default until unpin)")
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case name == "":
			return usage("--name is not given; give --name NAME")
		case !utf8.ValidString(name): // JSON would store another name, and unpin would not find it
			return usage("--name is not UTF-8")
		case fl.Changed("version") && version == 0:
			return usage("--version is 0; versions begin at 1")
		}
		return a.pin(cmd.Context(), args[0], name, version, ttl)
	}
	return c
}

func (a *app) pin(ctx context.Context, url, name string, version uint64, ttl time.Duration) error {
	st, err := a.logStore(ctx, url)
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
		a.letGo(ctx, r, &p)
		return errors.New("the log has no manifest yet, so there is nothing to pin: append something, or run `fencepost compact`, and try again")
	}
	// If nobody reads what is printed, the pin stays: the exit status says that it is there.
	if err = a.pinned(ctx, st, r, &p); err != nil && !errors.Is(err, errQuiet) {
		a.letGo(ctx, r, &p)
	}
	return err
}

// letGo releases a pin that nobody was told of. One with a time to live lapses by itself.
func (a *app) letGo(ctx context.Context, r *reader.Reader, p *manifest.Pin) {
	if p.TTL > 0 {
		a.con.note("the pin is there, and lapses in %v", p.TTL)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	if err := r.Release(ctx, *p); err != nil {
		a.con.note("the pin is there all the same, and could not be released (%s): it holds until `fencepost unpin`", line(err))
	}
}

// pinned says what a pin keeps, and what it does not.
func (a *app) pinned(ctx context.Context, st store.Store, r *reader.Reader, p *manifest.Pin) error {
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
		a.con.note("not pinned: %s after offset %d, which version %d does not have. %s", plural(n, "record"), s.End(), p.Version, advice)
	case edits:
		a.con.note("not pinned: changes of the table that are not compacted. %s", advice)
	}
	return a.show(struct {
		Name    string `json:"name"`
		Version uint64 `json:"version"`
		First   uint64 `json:"first"`
		End     uint64 `json:"end"`
		LogEnd  uint64 `json:"log_end"`
		Files   int    `json:"files"`
	}{p.Name, p.Version, s.First(), s.End(), end, s.Live()}, fmt.Appendf(nil, "pinned version %d as %s: %s, %s\n", p.Version, printable(p.Name), recordRange(s.First(), s.End()), plural(s.Live(), "file")))
}

// recordRange writes a range of records.
func recordRange(first, end uint64) string {
	if first >= end {
		return "no records"
	}
	return fmt.Sprintf("%s, %d to %d", plural(end-first, "record"), first, end-1)
}

func (a *app) unpinCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "unpin [--json] NAME URL",
		Short: "remove pins",
		Long: `Unpin removes all pins of a name. A process that still relies on one learns it at its
next renewal. Later compactions delete what only these pins have kept.

It needs the rights of a reader.`,
		Example: "fencepost unpin backup-2026-11 s3://bucket/orders",
		Args:    wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage("the name is empty: which pins?")
			}
			r, err := a.reader(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			err = r.Unpin(cmd.Context(), args[0])
			if errors.Is(err, reader.ErrNoPin) {
				return fmt.Errorf("there is no pin called %s; see `fencepost pins`", printable(args[0]))
			}
			if err != nil {
				return err
			}
			return a.show(map[string]string{"unpinned": args[0]}, fmt.Appendf(nil, "unpinned %s\n", printable(args[0])))
		},
	}
	a.jsonFlag(c)
	return c
}

// pinDoc is a pin as pins --json prints it.
type pinDoc struct {
	Name     string    `json:"name,omitempty"`
	Version  uint64    `json:"version"`
	Holder   string    `json:"holder"`
	TTL      string    `json:"ttl,omitempty"`
	Renewals uint64    `json:"renewals"`
	Created  time.Time `json:"created"`
	Renewed  time.Time `json:"renewed"`
	Expired  bool      `json:"expired,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Key      string    `json:"key"`
}

func pinDocs(pins []manifest.Pin) []pinDoc {
	docs := []pinDoc{}
	for _, p := range pins {
		d := pinDoc{
			Name: p.Name, Version: p.Version, Holder: p.Holder, Renewals: p.Renewals, Created: p.Created, Renewed: p.Renewed,
			Expired: p.Expired, Reason: p.Reason, Key: p.Key,
		}
		if p.TTL > 0 {
			d.TTL = p.TTL.String()
		}
		docs = append(docs, d)
	}
	slices.SortFunc(docs, func(a, b pinDoc) int { return a.Created.Compare(b.Created) })
	return docs
}

func (a *app) pinsCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "pins [--json] URL",
		Short: "list the pins",
		Long: `Pins lists all pins: those of the verb pin, and those of processes that read a
snapshot. The latter lapse when they are not renewed.

It needs the right to read.`,
		Example: "fencepost pins s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			pins, err := r.Pins(cmd.Context())
			if err != nil {
				return err
			}
			docs := pinDocs(pins)
			return a.show(docs, pinTable(docs))
		},
	}
	a.jsonFlag(c)
	return c
}

func pinTable(docs []pinDoc) []byte {
	return aligned(func(w io.Writer) {
		if len(docs) > 0 {
			fmt.Fprintln(w, "NAME\tVERSION\tSINCE\tLAPSES\tHOLDER")
		}
		for _, d := range docs {
			lapses := "never"
			switch {
			case d.Expired:
				lapses = "lapsed: " + printable(d.Reason)
			case d.TTL != "":
				lapses = d.TTL + " after " + when(d.Renewed)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", cmp.Or(printable(d.Name), "-"), d.Version, when(d.Created), lapses, printable(d.Holder))
		}
	})
}
