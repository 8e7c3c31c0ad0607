package cat

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/reader"
)

// excerpt is the range of records that cat was asked for.
type excerpt struct {
	from, to     uint64 // from is reader.Oldest where no flag says it
	since, until time.Time
	bounded      bool // one of --to, --since and --until was given
}

func (e *excerpt) flags(c *cobra.Command) {
	fl := c.Flags()
	kit.OffsetVar(fl, &e.from, "from", "offset of the first record (default the first that the log has)")
	fl.Uint64Var(&e.to, "to", 0, "offset after the last record (default the end of the log)")
	kit.TimeVar(fl, &e.since, "since", "time of the first record")
	kit.TimeVar(fl, &e.until, "until", "time of the last record")
}

// check is called before any request.
func (e *excerpt) check(c *cobra.Command) error {
	fl := c.Flags()
	e.bounded = slices.ContainsFunc([]string{"to", "since", "until"}, fl.Changed)
	switch {
	case fl.Changed("from") && fl.Changed("to") && e.to < e.from:
		return kit.Usage("--to %d is before --from %d", e.to, e.from)
	case fl.Changed("since") && fl.Changed("until") && e.until.Before(e.since):
		return kit.Usage("--until %s is before --since %s", fl.Lookup("until").Value, fl.Lookup("since").Value)
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
		return 0, 0, kit.Ahead(e.from, s.End())
	case fl.Changed("to") && !fl.Changed("from") && e.to <= s.First() && s.First() > 0:
		return 0, 0, fmt.Errorf("all records before --to %d: %w", e.to, &reader.GoneError{Offset: max(e.to, 1) - 1, First: s.First()})
	case fl.Changed("to"):
		to = min(to, e.to)
	}
	if fl.Changed("since") {
		if from, err = kit.NotBefore(ctx, r, e.since); err != nil {
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

// printExcerpt prints a range of records from a snapshot, so that nothing of it is deleted meanwhile.
func printExcerpt(k *kit.Kit, cmd *cobra.Command, r *reader.Reader, e *excerpt, encode encoder) error {
	ctx := cmd.Context()
	s, err := k.Snapshot(ctx, r, 0, "cat")
	if err != nil {
		return err
	}
	defer k.Release(ctx, s)
	from, to, err := e.bounds(ctx, cmd.Flags(), r, s)
	if err != nil || from >= to {
		return err
	}
	return k.Stream(func(out *bufio.Writer) error {
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
