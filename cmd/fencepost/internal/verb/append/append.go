// Package append is the verb append.
package append

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/feed"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// maxUnacknowledged bounds the memory of an append. The writer keeps so many bytes until
// they are acknowledged, and the feed keeps as many, so that it can go back.
const maxUnacknowledged = 64 << 20

type appending struct {
	*kit.Kit
	url, file string
	cursor    bool
	source    string
	format    string
	inFlight  int
	rate      float64
	frugal    bool
	batch     int64
	granted   *granted
	protocol  string
	promise   time.Duration
	noWait    bool
	election  func() leader.Options
	leader    leader.Options

	epoch   fence.Epoch
	backlog writer.Progress
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	p := &appending{Kit: k}
	c := &cobra.Command{
		Use:   "append [--cursor] [--protocol json] [--epoch N [--partition P]] URL [FILE]",
		Short: "wait to lead, then append a file or standard input",
		Long: `Append waits until this process leads the log, and appends the records of FILE, or
of standard input. It makes the log if there is none.

A record is a line with its newline; the last line may have none. With --format
frames a record is a length of 4 bytes, the most significant first, and so many bytes.
Cat with the same format prints the same bytes.

With --cursor the name of the source, and how far it was read, are stored with the
records, atomically. So an append that was killed, or that lost the lead, goes on
there, on any machine. A file that is appended twice is stored once; of a file that
has grown, the rest is appended. The name is FILE's absolute path, or what --source
says; standard input needs --source. Another source is an error, and so is a source
whose beginning has changed.

Without --cursor an append that loses the lead goes on only if it is certain which
records the log has. Otherwise it ends with status 3, and says what is known.

With --epoch it does not wait to lead: it appends in epoch N, as the command of fencepost
exec does, with --epoch "$FENCEPOST_EPOCH". Under exec --group, --partition
"$FENCEPOST_PARTITION" means the log of that partition. It ends with status 77 if a later
epoch has opened the log, and also if epoch N has: each epoch can open it once. So let one
append run for as long as the command does. At SIGTERM, which exec sends to all of its
command, it reads standard input to its end. Nobody with a lower epoch than N can append
any more: do not invent one.

` + protocolHelp + `

It needs the rights of a writer, and at most about 200 MiB of memory and four times
the longest record.`,
		Example: "fencepost append --cursor s3://bucket/orders orders.txt",
		Args:    kit.WantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.url = args[0]
			if len(args) == 2 && args[1] != "-" {
				if p.file = args[1]; p.file == "" {
					return kit.Usage("the name of the file is empty; for standard input leave it out, or write -")
				}
			}
			if err := p.granted.check(p.url); err != nil {
				return err
			}
			return p.run(cmd.Context())
		},
	}
	fl := c.Flags()
	fl.BoolVar(&p.cursor, "cursor", false, "store with the records how far the source was read, and go on there")
	fl.StringVar(&p.source, "source", "", "name of the source, for --cursor (default FILE's absolute path)")
	fl.StringVar(&p.protocol, "protocol", "", "json: speak JSON with the program that started this, line by line")
	kit.SpanVar(fl, &p.promise, "promise", "", time.Second, "end the term if the program is silent for so long (default never)")
	fl.BoolVar(&p.noWait, "no-wait", false, "end if another process leads")
	fl.StringVar(&p.format, "format", string(feed.Lines), "lines or frames")
	kit.CountVar(fl, &p.inFlight, "concurrency", 16, "how many objects to write at once")
	kit.BytesVar(fl, &p.batch, "batch-bytes", "how large an object may grow while it waits to be sent (default 4 MiB)")
	fl.Float64Var(&p.rate, "requests-per-second", 0, "most objects sent on average (default no bound)")
	fl.BoolVar(&p.frugal, "frugal", false, "at most 2.8 objects a second, $39 a month on S3")
	k.FilesFlag(c)
	p.granted = grantedFlags(fl)
	p.election = k.Election(c)
	k.ListenFlag(c)
	k.JSONFlag(c)
	kit.Needs(c, "cursor", "source")
	kit.Excludes(c, "frugal", "requests-per-second")
	kit.Needs(c, "epoch", "partition")
	kit.Excludes(c, "epoch", "validity", "no-wait") // with an epoch nobody is elected
	kit.Needs(c, "protocol", "promise", "no-wait")
	kit.Excludes(c, "protocol", "cursor", "source", "format", "json") // its messages have cursors
	return c
}

func (p *appending) run(ctx context.Context) error {
	if p.file == "" && p.granted.underExec() {
		var stop func()
		ctx, stop = kit.ToTheEnd(ctx, func() { p.Console.Note("SIGTERM: reading on to the end of the input; SIGINT ends this at once") })
		defer stop()
	}
	if p.format != string(feed.Lines) && p.format != string(feed.Frames) {
		return kit.Usage("--format is lines or frames, not %q", p.format)
	}
	if p.protocol != "" && p.protocol != "json" {
		return kit.Usage("--protocol is json, not %q", p.protocol)
	}
	if p.protocol != "" && p.file != "" {
		return kit.Usage("--protocol json speaks on standard input and output, not with the file %s", p.file)
	}
	if p.batch > maxUnacknowledged {
		return kit.Usage("--batch-bytes is %d; it must be at most %d", p.batch, maxUnacknowledged)
	}
	opts := p.writer()
	if err := opts.Validate(); err != nil {
		return kit.Usage("%w", err) // now, since others may lead for weeks
	}
	in, size, err := p.input(ctx)
	if err != nil {
		// Perhaps URL and FILE were swapped. Then the error of the URL says more.
		if _, bad := p.Store(ctx, p.url, false); errors.Is(bad, store.ErrInvalid) {
			return bad
		}
		return err
	}
	if c, ok := in.(io.Closer); ok {
		defer c.Close()
	}
	if !utf8.ValidString(p.source) { // JSON would store another name
		return kit.Usage("the name of the source, %q, is not UTF-8; give another one with --source", p.source)
	}
	st, err := p.Store(ctx, p.url, p.granted.partition < 0)
	if err != nil {
		return err
	}
	if st, err = p.granted.log(ctx, st); err != nil {
		return err
	}
	p.granted.init(opts.Init)
	// A store that cannot be used is an error now. A candidate would wait for it.
	if opts.Files, err = p.Files(ctx, true); err != nil {
		return err
	}
	format, err := manifest.ReadFormat(ctx, st, nil)
	if err == nil {
		err = kit.Fits(ctx, st, &format, opts.Files)
	}
	if err != nil {
		// So is a log whose format.json is gone: no epoch should be won for it.
		if err := kit.Orphaned(ctx, st, err); !errors.Is(err, manifest.ErrNotInitialized) {
			return err
		}
		if err := survey.Above(ctx, st, nil); err != nil {
			return err
		}
		format.Limits = fence.DefaultLimits()
	}
	if format.Backup { // before an epoch is won there
		return fmt.Errorf("%w: %s", manifest.ErrBackup, st.Traits().Name)
	}
	if limit := format.Limits.Object; p.batch > limit {
		return kit.Usage("--batch-bytes is %d; the log's limit for an object is %d", p.batch, limit)
	}
	if p.protocol != "" {
		return p.serve(ctx, st, opts)
	}
	name := cmp.Or(p.file, "standard input")
	input := feed.NewInput(in, name, feed.Format(p.format))
	defer input.Close()
	f := feed.New(input, p.source, p.hooks(size))
	f.Batch = p.batch
	if p.granted.epoch > 0 {
		err = p.inEpoch(ctx, st, f, opts)
	} else {
		err = p.lead(ctx, st, f, opts)
	}
	if fatal := f.Fatal(); fatal != nil {
		err = fatal // also if a signal came before it was found: what is unknown counts more
	}
	stats := f.Stats()
	p.Console.Done()
	var unknown *feed.UnknownError
	switch {
	case errors.As(err, &unknown):
		return kit.Kind(kit.ErrOutcome, unknown)
	case err != nil && stats.Records > 0:
		p.Console.Note("appended %s, up to byte %d of %s, before it ended", count(stats), stats.Position, name)
		return err
	case err != nil:
		return err
	case stats.Records == 0 && stats.Position > 0:
		p.Console.Note("nothing to append: all %d bytes of %s are in the log already", stats.Position, name)
	default:
		p.Console.Note("appended %s; the log has %s", count(stats), kit.Plural(stats.End, "record"))
	}
	if p.JSON {
		return p.Print(struct {
			feed.Stats
			Epoch  fence.Epoch `json:"epoch"`
			Source string      `json:"source,omitempty"`
		}{stats, p.epoch, p.source})
	}
	return nil
}

func count(s feed.Stats) string {
	return fmt.Sprintf("%s, %s", kit.Plural(s.Records, "record"), humanize.IBytes(uint64(s.Bytes)))
}

// input opens the source and gives it its name.
func (p *appending) input(ctx context.Context) (io.Reader, int64, error) {
	if p.file == "" {
		if p.cursor && p.source == "" {
			return nil, 0, kit.Usage("--cursor on standard input needs --source NAME: a name for the data that comes there")
		}
		return p.In, 0, nil
	}
	file, err := p.OpenInput(ctx, p.file)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = kit.Usage("%s is a directory", p.file)
	}
	if err == nil && p.cursor && p.source == "" {
		// Not its base name: a file of that name in another directory would be taken for
		// this one, and its beginning left out.
		p.source, err = filepath.Abs(p.file)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func (p *appending) hooks(size int64) feed.Hooks {
	return feed.Hooks{
		Positioned: func(at int64) {
			if at > 0 {
				p.Console.Note("going on at byte %d", at)
			}
		},
		Skipping:     func(at int64) { p.Console.Progress("comparing", at, size, true) },
		Acknowledged: func(at int64) { p.Console.Progress("appending", at, size, true) },
	}
}

// writer is how the records are written.
func (p *appending) writer() *writer.Options {
	if p.frugal {
		p.rate = writer.Frugal
	}
	return &writer.Options{
		Concurrency: p.inFlight, BatchBytes: p.batch, MaxBytes: maxUnacknowledged,
		RequestsPerSecond: p.rate,
		Init:              &manifest.InitOptions{Probe: p.Aloud(p.Probing(p.url))},
		Hooks:             p.Gauges.Writer(writer.Hooks{Progress: p.recovering}),
	}
}

// recovering shows how much of the unfolded log has been read. It may be much if the last
// leader had no time for a checkpoint. How much there is, nobody knows before.
func (p *appending) recovering(r writer.Progress) {
	p.backlog = r
	if !p.Console.Due() {
		p.Console.Progress("reading the tail", r.Bytes, 0, true)
	} else {
		p.Console.Note("reading the tail of the log: %s, %s, %s so far, written until %s",
			kit.Plural(r.Objects, "object"), kit.Plural(r.Records, "record"), humanize.IBytes(uint64(r.Bytes)), kit.When(r.Time))
	}
}

// recovered says what was read, if it took so long that recovering has shown it.
func (p *appending) recovered() {
	if p.Console.Done() {
		p.Console.Note("read the tail of the log: %s, %s, %s", kit.Plural(p.backlog.Objects, "object"), kit.Plural(p.backlog.Records, "record"), humanize.IBytes(uint64(p.backlog.Bytes)))
	}
	p.backlog = writer.Progress{}
}

// lead feeds while this process leads.
func (p *appending) lead(ctx context.Context, st store.Store, f *feed.Feed, wo *writer.Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.leader = p.election()
	if err := p.leader.Validate(); err != nil {
		return kit.Usage("%w", err)
	}
	notes := leader.Hooks{
		Leader: func(r leader.Record) { p.Meets(r, p.leader.Identity) },
		Elected: func(e leader.Election) {
			p.Console.Note("leading in epoch %d, after waiting for %v", e.Epoch, e.Took.Round(time.Millisecond))
		},
	}
	if p.Verbose {
		// The log says the same.
		notes = leader.Hooks{}
	}
	p.leader.Hooks = p.Gauges.Leader("log", notes)
	opts := &fencepost.Options{
		Leader: &p.leader,
		Writer: wo,
		Logger: p.Log,
	}
	var log fence.ID
	done := false
	err := fencepost.Run(ctx, st, opts, func(ctx context.Context, w *fencepost.Session) error {
		p.epoch = w.Epoch()
		if id := w.Format().Log; log == (fence.ID{}) {
			log = id
		} else if id != log {
			err := fmt.Errorf("there is another log at %s now, %v in place of %v; what was appended before is not in it", p.url, id, log)
			cancel(err)
			return err
		}
		p.recovered()
		err := f.Work(ctx, w.Writer)
		if fatal := f.Fatal(); fatal != nil {
			cancel(fatal) // or Run would contend again for nothing
		}
		done = err == nil
		return err
	})
	if !done && err == nil { // not at the end of the input
		err = context.Cause(ctx)
	}
	return err
}
