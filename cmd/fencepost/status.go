package main

import (
	"bytes"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/internal/layout"
)

func (a *app) statusCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "status [--json] URL",
		Short: "print who leads, where the log ends, and how large it is",
		Long: `Status prints who leads, since when, and in which epoch; the tail, the number of
records, and the producer's cursor; the floor and the newest manifest; objects and
bytes of each kind; and the results of the probe when the log was made. It lists all
objects.

It needs the right to read.`,
		Example: "fencepost status s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.logStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			a.warnUnfolded(cmd.Context(), st)
			s, err := survey.Take(cmd.Context(), st, func(n int) { a.con.progress("listing", int64(n), 0, false) })
			if err != nil {
				return err
			}
			a.con.done()
			if a.json {
				return a.print(s)
			}
			return a.write(statusTable(s))
		},
	}
	a.jsonFlag(c)
	return c
}

func statusTable(s *survey.Survey) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("store", "%s", s.Store)
	row("log", "%v, made %s", s.Log, when(s.Created))
	row("limits", "object %s, record %s, cursor %s, manifest %s; grace %s", size(s.Limits.Object), size(s.Limits.Record), size(s.Limits.Cursor), size(s.Limits.Manifest), s.Grace)
	row("leader", "%s", leadership(s.Leader))
	row("compactor", "%s", leadership(s.Compactor))
	records := fmt.Sprintf("%d records", s.Offset)
	if s.First > 0 {
		records += fmt.Sprintf(", those before %d were truncated", s.First)
	}
	row("tail", "%v; %s", s.Tail, records)
	switch {
	case s.CursorText != "":
		row("cursor", "%s", s.CursorText)
	case len(s.Cursor) > 0:
		row("cursor", "%d bytes: %x", len(s.Cursor), s.Cursor[:min(len(s.Cursor), 64)])
	default:
		row("cursor", "none")
	}
	m := s.Manifest
	hint := "none"
	if m.Hint != nil {
		hint = m.Hint.String()
	}
	row("floor", "%v, offset %d; hint %s", m.Floor, m.FloorAt, hint)
	if m.Version == 0 {
		row("manifest", "none yet")
	} else {
		row("manifest", "%d, of %s; prune mark %d", m.Version, when(m.Written), m.PruneMark)
		row("", "names %d segments, %d seals, %d dropped, %d lists; %d live files at the floor", m.Segments, m.Seals, m.Dropped, m.Lists, m.Files)
		for _, role := range []layout.Role{layout.Writer, layout.Compactor} {
			if r, ok := m.Roles[role]; ok {
				row("", "%s of epoch %d, update %d", role, r.Epoch, r.Update)
			}
		}
	}
	for _, kind := range layout.Kinds() {
		c, ok := s.Objects[kind]
		if !ok {
			continue
		}
		note := ""
		if kind == layout.KindData && s.BeforeFloor.Objects > 0 {
			note = fmt.Sprintf("; of these %d, %s, before the floor", s.BeforeFloor.Objects, size(int(s.BeforeFloor.Bytes)))
		}
		row("objects", "%s: %d, %s%s", kind, c.Objects, size(int(c.Bytes)), note)
	}
	if p := s.Probe; p != nil {
		row("probe", "%s: kept %d promises; %d clients raced, %d creates, %d swaps", when(p.At), len(p.Kept), p.Clients, p.CreateRaces, p.SwapRaces)
		row("", "put %.1f ms, get %.1f ms, list %.1f ms", p.Put.P50, p.Get.P50, p.List.P50)
	}
	_ = w.Flush()
	return b.Bytes()
}

func leadership(l survey.Leadership) string {
	switch {
	case l.Epoch == 0:
		return "nobody yet"
	case !l.Leads && l.Lapsed:
		return fmt.Sprintf("nobody; %s led in epoch %d until its lock lapsed", l.Holder, l.Epoch)
	case !l.Leads:
		s := fmt.Sprintf("nobody; %s led in epoch %d", l.Holder, l.Epoch)
		if l.Reason != "" {
			s += ", " + l.Reason
		}
		return s
	}
	s := fmt.Sprintf("%s, epoch %d, since %s; validity %s", l.Holder, l.Epoch, when(l.Since), l.Validity)
	if l.State != "held" {
		s += ", " + l.State
	}
	return s
}

func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func size(n int) string { return humanize.IBytes(uint64(max(n, 0))) }
