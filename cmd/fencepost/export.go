package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

func (a *app) exportCmd() *cobra.Command {
	var e exporting
	c := &cobra.Command{
		Use:   "export [--from N | --since TIME] [--to N | --until TIME] URL",
		Short: "print a range of records as lines of JSON",
		Long: `Export prints a range of records, each as a line of JSON (NDJSON). By default that is
the whole log. If the log has fewer records than --from says, that is an error.

` + schema + `

The time of a record is that of its writer; after compaction it is the latest time in
a block of about 1 MiB. --since begins with the first record that is not before TIME,
--until ends before the first record that is after TIME.

It needs the right to read. If it may also write a pin, nothing that it is about to
print is deleted meanwhile.

` + times,
		Example: "fencepost export --since 7d s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return e.run(cmd, a, args[0]) },
	}
	fl := c.Flags()
	fl.Uint64Var(&e.from, "from", 0, "offset of the first record (default the first that the log has)")
	fl.Uint64Var(&e.to, "to", 0, "offset after the last record (default the end of the log)")
	timeVar(fl, &e.since, "since", "time of the first record")
	timeVar(fl, &e.until, "until", "time of the last record")
	fl.BoolVar(&e.exact, "exact", false, exactHelp)
	a.jsonFlag(c)
	return c
}

type exporting struct {
	from, to     uint64
	since, until time.Time
	exact        bool
}

func (e *exporting) run(cmd *cobra.Command, a *app, url string) error {
	fl, ctx := cmd.Flags(), cmd.Context()
	switch {
	case fl.Changed("from") && fl.Changed("since"):
		return usage("--from and --since both say where to begin")
	case fl.Changed("to") && fl.Changed("until"):
		return usage("--to and --until both say where to end")
	case fl.Changed("from") && fl.Changed("to") && e.to < e.from:
		return usage("--to %d is before --from %d", e.to, e.from)
	case fl.Changed("since") && fl.Changed("until") && e.until.Before(e.since):
		return usage("--until %s is before --since %s", fl.Lookup("until").Value, fl.Lookup("since").Value)
	}
	r, err := a.reader(ctx, url)
	if err != nil {
		return err
	}
	s, err := a.snapshot(ctx, r, 0, "export")
	if err != nil {
		return err
	}
	defer a.release(ctx, s)
	from, to := s.First(), s.End()
	if fl.Changed("from") {
		from = e.from
	}
	switch {
	case fl.Changed("from") && e.from > s.End():
		return ahead(e.from, s.End())
	case fl.Changed("to") && !fl.Changed("from") && e.to <= s.First() && s.First() > 0:
		return fmt.Errorf("all records before --to %d: %w", e.to, &reader.GoneError{Offset: max(e.to, 1) - 1, First: s.First()})
	case fl.Changed("to"):
		to = min(to, e.to)
	}
	if fl.Changed("since") {
		if from, err = notBefore(ctx, r, e.since); err != nil {
			return err
		}
		from = max(from, s.First())
	}
	if fl.Changed("until") {
		end, err := r.After(ctx, e.until)
		if err != nil {
			return err
		}
		to = min(to, end)
	}
	return a.stream(func(out *bufio.Writer) error {
		if from >= to {
			return nil
		}
		for rec, err := range s.Records(ctx, from) {
			if err != nil {
				return err
			}
			if rec.Offset >= to {
				break
			}
			if err := encodeJSON(out, rec, e.exact); err != nil {
				return err
			}
		}
		return nil
	})
}

// ahead is the error of an offset that the log has not reached. The offset is probably from
// another log, and to print nothing would look like success.
func ahead(from, end uint64) error {
	return fmt.Errorf("not there yet: offset %d; the log ends at %d", from, end)
}

// reader opens a reader of the log at a URL.
func (a *app) reader(ctx context.Context, url string) (*reader.Reader, error) {
	return a.measuredReader(ctx, url, &gauges{})
}

func (a *app) measuredReader(ctx context.Context, url string, g *gauges) (*reader.Reader, error) {
	st, err := a.logStore(ctx, url)
	if err != nil {
		return nil, err
	}
	a.warnUnfolded(ctx, st)
	return reader.Open(ctx, g.store(st), &reader.Options{Hooks: g.reader(reader.Hooks{})})
}

// snapshot takes a snapshot of a version, 0 for the end of the log, without a pin if this process may not write one.
func (a *app) snapshot(ctx context.Context, r *reader.Reader, version uint64, what string) (*reader.Snapshot, error) {
	o := &reader.SnapshotOptions{Version: version, Name: "fencepost " + what}
	s, err := r.Snapshot(ctx, o)
	if !errors.Is(err, store.ErrDenied) {
		return s, err
	}
	o.Unpinned = true
	s, uerr := r.Snapshot(ctx, o)
	if uerr != nil {
		return nil, uerr
	}
	a.con.note("not allowed to write a pin: what this command reads may be deleted after the log's grace period")
	return s, nil
}

// release closes a snapshot, also when ctx has ended.
func (a *app) release(ctx context.Context, s *reader.Snapshot) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		a.con.note("the pin could not be deleted; it lapses by itself: %s", line(err))
	}
}
