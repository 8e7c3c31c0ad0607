// Package cat is the verb cat.
package cat

import (
	"bufio"
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/reader"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	e := excerpt{from: reader.Oldest}
	var follow, poll, exact bool
	var format string
	who := consumer{note: func(format string, args ...any) { k.Console.Note(format, args...) }}
	c := &cobra.Command{
		Use:   "cat [--from N] [--to N] [--follow] [--consumer NAME] [--format FORMAT] URL",
		Short: "print the records",
		Long: `Cat prints the records from number N on, or from the first one, to the end of the
log. With --follow it goes on as the log grows. If there is no log, or it has fewer
than N records, that is an error; with --follow cat waits for it. If the leader says in
its lock where it tells readers (agent --readers), cat --follow connects there, and has
each record as soon as it is committed. With --poll it only reads the store.

--since begins with the first record that is not before TIME, --to and --until end
before record N, and before the first record that is after TIME. The time of a record
is that of its writer; after compaction it is the latest time in a block of about
1 MiB. With one of these three, if cat may write a pin, nothing that it is about to
print is deleted meanwhile.

` + kit.Times + `

With the format lines, a record that does not end in a newline gets one. Raw prints the
bytes as they were appended, and nothing between them. Frames puts a length of 4 bytes
before each record, the most significant first. Json prints a line of JSON for each
(NDJSON); --json is short for that.

` + schema + `

With --consumer cat begins at the position of that name in the store, and keeps it up to
date: once a second, and at the end. A record counts when it is written to
standard output. So what reads there to the end sees each record at least once. If a
reader of a pipe dies, up to 64 KiB of records that count may not have been read. Of
two with one name, the one that was started later goes on. The other ends with an error
as soon as it has to write its position. With --epoch the one with the greater epoch
goes on, such as $FENCEPOST_EPOCH of fencepost exec.

It needs the right to read, and with --consumer to write below consumer/.`,
		Example: "fencepost cat --since 7d --json s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.Lines = true
			if k.JSON && !cmd.Flags().Changed("format") {
				format = "json"
			}
			encode, ok := encoders[format]
			switch {
			case !ok:
				return kit.Usage("--format is lines, raw, frames or json, not %q", format)
			case k.JSON && format != "json":
				return kit.Usage("--json and --format %s exclude each other", format)
			case exact && format != "json":
				return kit.Usage("--exact goes with --json, which is not given")
			case exact:
				encode = func(w io.Writer, r reader.Record) error { return encodeJSON(w, r, true) }
			}
			if err := e.check(cmd); err != nil {
				return err
			}
			if follow {
				if err := k.AwaitLog(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			open := k.Reader
			if follow && !poll {
				open = k.Follower
			}
			r, err := open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, err := who.open(cmd.Context(), r, &e.from)
			if err != nil {
				return k.Refused(err)
			}
			if e.bounded {
				return printExcerpt(k, cmd, r, &e, encode)
			}
			return k.Refused(who.close(ctx, cat(ctx, k, r, e.from, follow, encode, &who)))
		},
	}
	k.ListenFlag(c)
	e.flags(c)
	c.Flags().BoolVar(&follow, "follow", false, "go on as the log grows")
	c.Flags().BoolVar(&poll, "poll", false, "connect to no leader")
	c.Flags().StringVar(&format, "format", "lines", "lines, raw, frames or json")
	kit.CompleteFlag(c, "format", slices.Sorted(maps.Keys(encoders))...)
	c.Flags().BoolVar(&exact, "exact", false, exactHelp)
	c.Flags().StringVar(&who.name, "consumer", "", "begin at the position of that name, and keep it up to date")
	kit.EpochVar(c.Flags(), &who.epoch, "take the position over for this epoch (default for the next one)")
	k.JSONFlag(c)
	kit.Needs(c, "follow", "listen", "prices", "poll")
	kit.Needs(c, "consumer", "epoch")
	kit.Excludes(c, "from", "since")
	kit.Excludes(c, "to", "until")
	kit.Excludes(c, "follow", "to", "since", "until")
	kit.Excludes(c, "consumer", "to", "since", "until")
	return c
}

func cat(ctx context.Context, k *kit.Kit, r *reader.Reader, from uint64, follow bool, encode encoder, who *consumer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	records := r.Read(ctx, from)
	some := func() {}
	if follow {
		records = tail(ctx, k, r, from)
		some = waits(ctx, k, r, from)
		defer some()
	}
	none := true
	err := k.Stream(func(out *bufio.Writer) error {
		var to io.Writer = out
		if follow || who.c != nil {
			l := newGathering(out, cancel, who.flushing)
			defer func() {
				l.stop()
				if out.Flush() == nil {
					who.printed(who.wrote.Load()) // also after a signal, or an error of the store
				}
			}()
			to = l
		}
		for rec, err := range records {
			if err != nil {
				return kit.Ends(ctx, err)
			}
			if none {
				some()
				none = false
			}
			if err := encode(to, rec); err != nil {
				return err
			}
			who.wrote.Store(rec.Offset + 1)
		}
		return nil
	})
	if err != nil || follow || !none || from == reader.Oldest {
		return err
	}
	end, err := endOf(ctx, r)
	if err == nil && from > end {
		err = kit.Ahead(from, end)
	}
	return err
}

// tail yields the records as they come. After an outage of the store, which it says, it goes on.
func tail(ctx context.Context, k *kit.Kit, r *reader.Reader, from uint64) iter.Seq2[reader.Record, error] {
	return func(yield func(reader.Record, error) bool) {
		for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
			var failed error
			for rec, err := range r.Tail(ctx, from) {
				if failed = err; err != nil {
					break
				}
				if from, wait = rec.Offset+1, time.Second; !yield(rec, nil) {
					return
				}
			}
			if failed == nil {
				return
			}
			if err := k.Again(ctx, failed, "trying", wait); err != nil {
				yield(reader.Record{}, err)
				return
			}
		}
	}
}

// endOf returns the end offset: the number of all records.
func endOf(ctx context.Context, r *reader.Reader) (uint64, error) {
	s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		return 0, err
	}
	return s.End(), s.Close(ctx)
}

// waits says after a while that a reader waits until the log has its first record, unless
// stop is called before.
func waits(ctx context.Context, k *kit.Kit, r *reader.Reader, from uint64) (stop func()) {
	if from == reader.Oldest {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-time.After(k.Patience):
		case <-ctx.Done():
			return
		}
		if end, err := endOf(ctx, r); err == nil && from > end {
			k.Console.Note("waiting for record %d; the log ends at %d", from, end)
		}
	}()
	return func() {
		cancel()
		<-over
	}
}
