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

// excerpt is the range of records that cat was asked for.
type excerpt struct {
	from, to     uint64 // from is reader.Oldest where no flag says it
	since, until time.Time
	bounded      bool // one of --to, --since and --until was given
}

func (e *excerpt) flags(c *cobra.Command) {
	fl := c.Flags()
	offsetVar(fl, &e.from, "from", "offset of the first record (default the first that the log has)")
	fl.Uint64Var(&e.to, "to", 0, "offset after the last record (default the end of the log)")
	timeVar(fl, &e.since, "since", "time of the first record")
	timeVar(fl, &e.until, "until", "time of the last record")
}

// check is called before any request.
func (e *excerpt) check(c *cobra.Command, follow, consumer bool) error {
	fl := c.Flags()
	for _, flag := range []string{"to", "since", "until"} {
		if !fl.Changed(flag) {
			continue
		}
		e.bounded = true
		if follow || consumer {
			return usage("--%s does not go with --follow and --consumer", flag)
		}
	}
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
	return nil
}

// bounds returns the offsets of the first record, and after the last.
func (e *excerpt) bounds(ctx context.Context, fl interface{ Changed(string) bool }, r *reader.Reader, s *reader.Snapshot) (from, to uint64, err error) {
	from, to = s.First(), s.End()
	if fl.Changed("from") {
		from = e.from
	}
	switch {
	case fl.Changed("from") && e.from > s.End():
		return 0, 0, ahead(e.from, s.End())
	case fl.Changed("to") && !fl.Changed("from") && e.to <= s.First() && s.First() > 0:
		return 0, 0, fmt.Errorf("all records before --to %d: %w", e.to, &reader.GoneError{Offset: max(e.to, 1) - 1, First: s.First()})
	case fl.Changed("to"):
		to = min(to, e.to)
	}
	if fl.Changed("since") {
		if from, err = notBefore(ctx, r, e.since); err != nil {
			return 0, 0, err
		}
		from = max(from, s.First())
	}
	if fl.Changed("until") {
		end, err := r.After(ctx, e.until)
		if err != nil {
			return 0, 0, err
		}
		to = min(to, end)
	}
	return from, to, nil
}

// excerpt prints a range of records from a snapshot, so that nothing of it is deleted meanwhile.
func (a *app) excerpt(cmd *cobra.Command, r *reader.Reader, e *excerpt, encode encoder) error {
	ctx := cmd.Context()
	s, err := a.snapshot(ctx, r, 0, "cat")
	if err != nil {
		return err
	}
	defer a.release(ctx, s)
	from, to, err := e.bounds(ctx, cmd.Flags(), r, s)
	if err != nil || from >= to {
		return err
	}
	return a.stream(func(out *bufio.Writer) error {
		for rec, err := range s.Records(ctx, from) {
			if err != nil {
				return err
			}
			if rec.Offset >= to {
				break
			}
			if err := encode(out, rec); err != nil {
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
