package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// app is the command with everything that it uses of its surroundings, so that tests can
// replace it.
type app struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is one
	open     func(ctx context.Context, url string) (store.Store, error)
	// handOver, if set, makes SIGHUP no longer end the context of the whole command.
	handOver func()
	// patience is how long something takes before a line says so; 5 s if 0.
	patience time.Duration

	verbose bool
	timeout time.Duration // of the first contact with a store
	json    bool
	log     *zap.Logger
	con     *console
}

const about = `Fencepost keeps logs in object stores. Each log is written by one process at a
time: append elects the writer with locks in the store itself. A writer that was
paused and replaced is refused with 412 when it wakes up.

A URL names a log:
  s3://bucket/prefix?endpoint=http://host:port&region=…
  gs://bucket/prefix
  az://container/prefix?account=…
  file:///absolute/dir
Credentials come from the usual environment of each cloud, never from the URL.

Data goes to standard output, everything else to standard error. Flags may stand
before or after the URL. Write lengths of time as 90s, 36h, 7d or 2w, and numbers
of bytes as 500000 or 16MiB.

Exit status: 0 done; 1 failed, or damage found; 2 wrong usage; 3 append cannot
tell whether some records are in the log; 77 a later epoch has refused this one;
129, 130 and 143 interrupted by a signal, after giving up the lead. Exec ends with
the status of its command.`

const usageTemplate = `Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}}

Verbs:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasExample}}

Example:
  {{.Example}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of all verbs:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "fencepost VERB URL",
		Short:         "Exactly-one-writer logs in object stores",
		Long:          about,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				cmd.SetOut(a.err)
				_ = cmd.Help()
				return usage("which verb?")
			}
			if strings.Contains(args[0], "://") {
				return usage("the verb is missing before the URL; see fencepost help")
			}
			if args[0] == "version" {
				return usage("there is no verb version; fencepost --version prints the version")
			}
			var verbs []string
			for _, c := range cmd.Commands() {
				verbs = append(verbs, c.Name())
			}
			return usage("there is no verb %q%s; see fencepost help", args[0], didYouMean("", args[0], verbs))
		},
		Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.patience = cmp.Or(a.patience, 5*time.Second)
			a.con = newConsole(a.err, a.terminal && !a.verbose, a.patience)
			a.log = zap.NewNop()
			if a.verbose {
				a.log = a.con.logger()
			}
			return notEmpty(cmd)
		},
	}
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log to standard error what is done")
	spanVar(root.PersistentFlags(), &a.timeout, "timeout", "10s", positive, "how long to wait for the first answer of the store")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		a.appendCmd(), a.catCmd(), a.filesCmd(), a.statusCmd(), a.initCmd(), a.compactCmd(), a.truncateCmd(),
		a.pinCmd(), a.unpinCmd(), a.pinsCmd(), a.historyCmd(), a.lagCmd(), a.doctorCmd(), a.backupCmd(), a.restoreCmd(), a.publishCmd(), a.publishedCmd(), a.unpublishCmd(), a.verifyCmd(), a.probeCmd(), a.stepDownCmd(), a.groupCmd(), a.manCmd(),
		a.execCmd(), a.watchdogCmd(), a.gateCmd(), a.serveCmd(), a.exporterCmd(),
	)
	for name, instead := range gone {
		root.AddCommand(goneCmd(name, instead))
	}
	root.SetOut(a.out) // the scripts of completion go where it is now
	root.InitDefaultCompletionCmd()
	for c := range family(root) {
		c.DisableFlagsInUseLine = true
		c.InitDefaultHelpFlag()
		c.Flags().SortFlags = false
		if strings.HasSuffix(c.Use, " URL") || strings.Contains(c.Use, " URL ") {
			c.ValidArgsFunction = completeURL
		}
	}
	root.DisableFlagsInUseLine = true
	root.InitDefaultHelpFlag()
	root.SetUsageTemplate(usageTemplate)
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version of this program"
	return root
}

// gone are the verbs that went, and what does the same.
var gone = map[string]string{
	"policy": "docs/policies.md has the policies",
	"export": "use cat --json, with --from, --to, --since or --until for a range",
	"top":    "status --watch shows a log in the terminal, and serve shows many in a browser",
}

// goneCmd names the successor of a verb that went, whatever flags it is given.
func goneCmd(name, instead string) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, Long: "There is no verb " + name + " any more: " + instead + ".", RunE: func(*cobra.Command, []string) error {
		return usage("there is no verb %s any more: %s", name, instead)
	}}
}

// family yields the commands below c, at any depth.
func family(c *cobra.Command) iter.Seq[*cobra.Command] {
	return func(yield func(*cobra.Command) bool) {
		for _, c := range c.Commands() {
			if !yield(c) {
				return
			}
			for c := range family(c) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// run is the whole command, up to its exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if a.con != nil {
		a.con.done()
	}
	if code, ok := errors.AsType[codeError](err); ok {
		return int(code)
	}
	// A signal matters more than the errors that it led to.
	if cause := (*interrupted)(nil); err != nil && errors.As(context.Cause(ctx), &cause) && !errors.Is(err, errOutcome) {
		err = cause
	}
	switch {
	case err == nil, errors.Is(err, errQuiet):
		return exitOK
	case !errors.Is(err, errDamaged):
		fmt.Fprintln(a.err, "fencepost: "+line(err))
	}
	return status(err)
}

// verb is how a command is called: status, or group status.
func verb(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// wantArgs checks the number of arguments, and says which are wanted.
func wantArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage("%s takes %s, not %d arguments; see fencepost help %s", verb(cmd), strings.TrimPrefix(cmd.Use, cmd.Name()+" "), len(args), verb(cmd))
		}
		return nil
	}
}

// store opens the store at a URL. Only verbs that make logs create a directory: with a
// mistyped path to read from, the user should not find an empty log there.
func (a *app) store(ctx context.Context, raw string, create bool) (store.Store, error) {
	dir, local := directory(raw)
	if create && local { // before it is made
		if err := a.outside(ctx, "", dir); err != nil {
			return nil, err
		}
	}
	st, err := a.opened(ctx, raw, create)
	if err == nil {
		err = a.reach(ctx, st)
	}
	if err == nil && create && !local {
		_, query, _ := strings.Cut(raw, "?")
		err = a.outside(ctx, query, st.Traits().Name)
	}
	if err != nil {
		return nil, err
	}
	return newWatched(st, a.con), nil
}

// writable returns manifest.ErrBackup if st is a backup, and manifest.ErrRestoring if one is being restored there.
func writable(ctx context.Context, st store.Store) error {
	switch f, err := manifest.ReadFormat(ctx, st, nil); {
	case errors.Is(err, manifest.ErrRestoring):
		return err
	case err == nil && f.Backup:
		return fmt.Errorf("%w: %s", manifest.ErrBackup, st.Traits().Name)
	}
	return nil
}

// opened opens a store like the method store, and asks nothing of it.
func (a *app) opened(ctx context.Context, raw string, create bool) (store.Store, error) {
	typed := raw
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "file" && !create {
		if q := u.Query(); !q.Has("create") {
			q.Set("create", "false")
			u.RawQuery = q.Encode()
			raw = u.String()
		}
	}
	st, err := a.open(ctx, raw)
	if e := (*store.Error)(nil); errors.As(err, &e) {
		if !strings.Contains(typed, "?") {
			e.Key = strings.TrimSuffix(e.Key, "?…")
		}
		if strings.Contains(e.Hint, "import _") { // advice for programmers, after what is the matter
			e.Hint = e.Hint[:strings.LastIndex(e.Hint, ";")] + "; write for example s3://bucket/prefix or file:///dir"
		}
	}
	if errors.Is(err, store.ErrInvalid) {
		err = &kindError{errUsage, err}
	}
	return st, err
}

// logStore opens the store of a log that exists.
func (a *app) logStore(ctx context.Context, raw string) (store.Store, error) {
	st, err := a.store(ctx, raw, false)
	if err != nil {
		return nil, err
	}
	if _, err := manifest.ReadFormat(ctx, st, nil); err != nil {
		return nil, orphaned(ctx, st, err)
	}
	return st, nil
}

// orphaned checks an error that there is no log. Perhaps only format.json is gone. What is there may also be a group, or
// only a lock.
func orphaned(ctx context.Context, st store.Store, err error) error {
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
	return onlyLock(ctx, st, err)
}

// probing are the options for a probe of the store at a URL. Each client of the probe
// opens connections of its own.
func (a *app) probing(raw string) *probe.Options {
	return &probe.Options{Open: func(ctx context.Context) (store.Store, error) { return a.open(ctx, raw) }}
}

// print writes v as JSON to standard output.
func (a *app) print(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return a.write(append(b, '\n'))
}

// show writes v as JSON if that is wanted, else text, to standard output.
func (a *app) show(v any, text []byte) error {
	if a.json {
		return a.print(v)
	}
	return a.write(text)
}

// printLine writes v as a line of JSON to standard output.
func (a *app) printLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.write(append(b, '\n'))
}

func (a *app) write(b []byte) error {
	_, err := a.out.Write(b)
	return written(err)
}

// unreadFor is how long a process that others may wait for waits until somebody reads its standard output.
const unreadFor = 15 * time.Second

// printRound writes v as a line of JSON to standard output, for work that goes on for ever. If nobody reads it that work
// must end, and not only wait: a leader that waits keeps the lead.
func (a *app) printRound(v any) error {
	done := make(chan error, 1)
	go func() { done <- a.printLine(v) }()
	select {
	case err := <-done:
		return err
	case <-time.After(unreadFor):
		return errUnread
	}
}

var errUnread = fmt.Errorf("nobody has read it for %v", unreadFor)

func (a *app) jsonFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.json, "json", false, "print JSON, for programs")
}

// election adds the flags of an election and returns its options.
func (a *app) election(c *cobra.Command) func() leader.Options {
	var validity time.Duration
	spanVar(c.Flags(), &validity, "validity", "15s", positive, "how long a lock holds without a heartbeat")
	return func() leader.Options {
		return leader.Options{Identity: leader.DefaultIdentity(), Validity: validity, Logger: a.log.Named("leader")} // one name over all terms
	}
}
