// Package kit is what all verbs of the command line share: flags, the console, opening a store or a log, waiting for them, exit
// statuses, and how numbers, times and JSON are written.
package kit

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// Kit is the command with everything that it uses of its surroundings, so that tests can
// replace it.
type Kit struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // err is one
	Open     func(ctx context.Context, url string) (store.Store, error)
	// handOver, if set, makes SIGHUP no longer end the context of the whole command.
	HandOver func()
	// patience is how long something takes before a line says so; 5 s if 0.
	Patience time.Duration

	Verbose bool
	Timeout time.Duration // of the first contact with a store
	JSON    bool
	Lines   bool // the JSON is a line for each record: there an error would be one more
	Log     *zap.Logger
	Console *Console

	// Gauges measure the verb's requests to stores, and what it does.
	Gauges Gauges

	vigil *vigil
	// printed: something went to standard output.
	printed bool
	// failure is what Again has said last, and failed is when.
	failure string
	failed  time.Time
	stop    func() // ends what the verb serves; may be nil
	files   string // the URL of --files
}

// Begin is called before a verb, when its flags are read.
func (k *Kit) Begin() {
	k.Patience = cmp.Or(k.Patience, 5*time.Second)
	k.Console = NewConsole(k.Err, k.Terminal && !k.Verbose, k.Patience)
	k.vigil = newVigil(k.Console)
	k.Log = k.Console.Logger(zap.WarnLevel)
	if k.Verbose {
		k.Log = k.Console.Logger(zap.InfoLevel)
	}
}

// End is called after a verb, also if it did not begin.
func (k *Kit) End() {
	if k.stop != nil {
		k.stop()
	}
	if k.vigil != nil {
		k.vigil.stop()
	}
	if k.Console != nil {
		k.Console.Done()
	}
}

// Verb is how a command is called: status, or group status.
func Verb(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// WantArgs checks the number of arguments, and says which are wanted.
func WantArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usage("%s takes %s, not %d arguments; see fencepost help %s", Verb(cmd), strings.TrimPrefix(cmd.Use, cmd.Name()+" "), len(args), Verb(cmd))
		}
		return nil
	}
}

// Store opens the store at a URL. Only verbs that make logs create a directory: with a
// mistyped path to read from, the user should not find an empty log there.
func (k *Kit) Store(ctx context.Context, raw string, create bool) (store.Store, error) {
	dir, local := Directory(raw)
	if create && local { // before it is made
		if err := k.outside(ctx, "", dir); err != nil {
			return nil, err
		}
	}
	st, err := k.Opened(ctx, raw, create)
	if err == nil {
		err = k.reach(ctx, st)
	}
	if err == nil && create && !local {
		_, query, _ := strings.Cut(raw, "?")
		err = k.outside(ctx, query, st.Traits().Name)
	}
	if err != nil {
		return nil, err
	}
	return &watched{k.Gauges.store(st), k.vigil}, nil
}

// Writable returns manifest.ErrBackup if st is a backup, and manifest.ErrRestoring if one is being restored there.
func Writable(ctx context.Context, st store.Store) error {
	switch f, err := manifest.ReadFormat(ctx, st, nil); {
	case errors.Is(err, manifest.ErrRestoring):
		return err
	case err == nil && f.Backup:
		return fmt.Errorf("%w: %s", manifest.ErrBackup, st.Traits().Name)
	}
	return nil
}

// Opened opens a store like the method store, and asks nothing of it.
func (k *Kit) Opened(ctx context.Context, raw string, create bool) (store.Store, error) {
	typed := raw
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "file" && !create {
		if q := u.Query(); !q.Has("create") {
			q.Set("create", "false")
			u.RawQuery = q.Encode()
			raw = u.String()
		}
	}
	st, err := k.Open(ctx, raw)
	if e := (*store.Error)(nil); errors.As(err, &e) {
		if !strings.Contains(typed, "?") {
			e.Key = strings.TrimSuffix(e.Key, "?…")
		}
		if strings.Contains(e.Hint, "import _") { // advice for programmers, after what is the matter
			e.Hint = e.Hint[:strings.LastIndex(e.Hint, ";")] + "; write for example s3://bucket/prefix or file:///dir"
		}
	}
	if errors.Is(err, store.ErrInvalid) {
		err = Kind(ErrUsage, err)
	}
	return st, err
}

// LogStore opens the store of a log that exists.
func (k *Kit) LogStore(ctx context.Context, raw string) (store.Store, error) {
	st, err := k.Store(ctx, raw, false)
	if err != nil {
		return nil, err
	}
	if _, err := manifest.ReadFormat(ctx, st, nil); err != nil {
		return nil, Orphaned(ctx, st, err)
	}
	return st, nil
}

// Orphaned checks an error that there is no log. Perhaps only format.json is gone. What is there may also be a group, or
// only a lock.
func Orphaned(ctx context.Context, st store.Store, err error) error {
	if !errors.Is(err, manifest.ErrNotInitialized) {
		return err
	}
	switch oerr := survey.Orphaned(ctx, st, nil); {
	case errors.Is(oerr, fence.ErrCorrupt):
		return oerr
	case oerr != nil:
		return errors.Join(err, oerr)
	}
	if _, _, rerr := store.Read(ctx, st, group.FormatKey, &store.ReadOptions{Limit: 1 << 20}); rerr == nil {
		return fmt.Errorf("%s has a group, not a log; see fencepost group status; partition 0 has its log, if there is one, below %s", st.Traits().Name, group.PartitionPrefix(0))
	}
	return OnlyLock(ctx, st, err)
}

// Probing are the options for a probe of the store at a URL. Each client of the probe
// opens connections of its own.
func (k *Kit) Probing(raw string) *probe.Options {
	return &probe.Options{Open: func(ctx context.Context) (store.Store, error) {
		st, err := k.Open(ctx, raw)
		if err != nil {
			return nil, err
		}
		return &watched{st, k.vigil}, nil
	}}
}

// Aloud says when a probe begins: it is made once in a place, and takes seconds.
func (k *Kit) Aloud(o *probe.Options) *probe.Options {
	open, first := o.Open, sync.Once{}
	o.Open = func(ctx context.Context) (store.Store, error) {
		first.Do(func() {
			k.Console.Note("nobody has written to this place yet; testing the store, which takes some seconds")
		})
		return open(ctx)
	}
	return o
}

// Print writes v as JSON to standard output.
func (k *Kit) Print(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return k.Write(append(HarmlessJSON(b), '\n'))
}

// Failed prints an error as JSON, if JSON is wanted and there is none yet. Where programs read JSON they find it also
// when the store is down.
func (k *Kit) Failed(err error) {
	if k.JSON && !k.Lines && !k.printed && Status(err) != ExitUsage {
		_ = k.Print(struct {
			Error  string `json:"error"`
			Status int    `json:"exit_status"`
		}{Line(err), Status(err)})
	}
}

// Show writes v as JSON if that is wanted, else text, to standard output.
func (k *Kit) Show(v any, text []byte) error {
	if k.JSON {
		return k.Print(v)
	}
	return k.Write(text)
}

// PrintLine writes v as a line of JSON to standard output.
func (k *Kit) PrintLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return k.Write(append(HarmlessJSON(b), '\n'))
}

// Write writes to standard output.
func (k *Kit) Write(b []byte) error {
	k.printed = true
	_, err := k.Out.Write(b)
	return written(err)
}

// unreadFor is how long a process that others may wait for waits until somebody reads its standard output.
const unreadFor = 15 * time.Second

// PrintRound writes v as a line of JSON to standard output, for work that goes on for ever. If nobody reads it that work
// must end, and not only wait: a leader that waits keeps the lead.
func (k *Kit) PrintRound(v any) error {
	done := make(chan error, 1)
	go func() { done <- k.PrintLine(v) }()
	select {
	case err := <-done:
		return err
	case <-time.After(unreadFor):
		return errUnread
	}
}

var errUnread = fmt.Errorf("nobody has read it for %v", unreadFor)

// JSONFlag adds --json to a verb.
func (k *Kit) JSONFlag(c *cobra.Command) {
	c.Flags().BoolVar(&k.JSON, "json", false, "print JSON, for programs")
}

// Stream lets f print many small things. If f fails, what it has printed is still written.
func (k *Kit) Stream(f func(*bufio.Writer) error) error {
	k.printed = true
	out := bufio.NewWriterSize(k.Out, 256<<10)
	err := f(out)
	// After a failed write Flush returns the same error.
	if ferr := out.Flush(); err == nil || errors.Is(err, ferr) {
		return written(ferr)
	}
	return err
}
