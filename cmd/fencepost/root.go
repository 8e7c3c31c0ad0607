package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/agent"
	appendverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/append"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/backup"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/cat"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/catalog"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/commit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/compact"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/doctor"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/exec"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/files"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/gate"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/group"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/history"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/initlog"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/lag"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/lock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/man"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/pin"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/publish"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/serve"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/status"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/stepdown"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/truncate"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/verb/verify"
)

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

Exit status: 0 done; 1 failed; 3 append cannot tell whether some records are in the
log; 64 wrong usage; 65 damage, or a problem; 66 nothing is there; 69 the store does
not answer; 75 somebody else leads; 77 a later epoch has refused this one; 129, 130
and 143 interrupted by a signal, after giving up the lead. Exec and lock end
with the status of their command.`

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

// verbs are all verbs, in the order of help. A new one stands here.
func verbs(k *kit.Kit) []*cobra.Command {
	return []*cobra.Command{
		agent.Command(k),
		appendverb.Command(k),
		backup.Backup(k),
		backup.Restore(k),
		cat.Command(k),
		catalog.Command(k),
		commit.Command(k),
		compact.Command(k),
		doctor.Command(k),
		exec.Command(k),
		exec.Watchdog(k),
		files.Command(k),
		gate.Command(k),
		group.Command(k),
		history.Command(k),
		initlog.Init(k),
		initlog.Probe(k),
		lag.Command(k),
		lock.Command(k),
		man.Command(k),
		pin.Pin(k),
		pin.Pins(k),
		pin.Unpin(k),
		publish.Publish(k),
		publish.Published(k),
		publish.Unpublish(k),
		serve.Exporter(k),
		serve.Serve(k),
		status.Command(k),
		stepdown.Command(k),
		truncate.Command(k),
		verify.Command(k),
	}
}

func rootCommand(k *kit.Kit) *cobra.Command {
	root := &cobra.Command{
		Use:           "fencepost VERB URL",
		Short:         "Exactly-one-writer logs in object stores",
		Long:          about,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				cmd.SetOut(k.Err)
				_ = cmd.Help()
				return kit.Usage("which verb?")
			}
			if strings.Contains(args[0], "://") {
				return kit.Usage("the verb is missing before the URL; see fencepost help")
			}
			if args[0] == "version" {
				return kit.Usage("there is no verb version; fencepost --version prints the version")
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			return kit.Usage("there is no verb %q%s; see fencepost help", args[0], kit.DidYouMean("", args[0], names))
		},
		Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			k.Begin()
			return kit.CheckFlags(cmd)
		},
	}
	root.PersistentFlags().BoolVarP(&k.Verbose, "verbose", "v", false, "log to standard error what is done")
	kit.SpanVar(root.PersistentFlags(), &k.Timeout, "timeout", "10s", kit.Positive, "how long to wait for the first answer of the store")
	root.SetFlagErrorFunc(kit.FlagError)
	root.AddCommand(verbs(k)...)
	for name, instead := range gone {
		root.AddCommand(goneCmd(name, instead))
	}
	root.SetOut(k.Out) // the scripts of completion go where it is now
	root.InitDefaultCompletionCmd()
	for c := range family(root) {
		c.DisableFlagsInUseLine = true
		c.InitDefaultHelpFlag()
		c.Flags().SortFlags = false
		if strings.HasSuffix(c.Use, " URL") || strings.Contains(c.Use, " URL ") {
			c.ValidArgsFunction = kit.CompleteURL
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
		return kit.Usage("there is no verb %s any more: %s", name, instead)
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

// runWith is the whole command, up to its exit status.
func runWith(ctx context.Context, k *kit.Kit, args []string) int {
	root := rootCommand(k)
	root.SetArgs(args)
	root.SetIn(k.In)
	root.SetOut(k.Out)
	root.SetErr(k.Err)
	err := root.ExecuteContext(ctx)
	k.End()
	if code, ok := errors.AsType[kit.CodeError](err); ok {
		return int(code)
	}
	// A signal matters more than the errors that it led to.
	if cause := (*kit.InterruptedError)(nil); err != nil && errors.As(context.Cause(ctx), &cause) && !errors.Is(err, kit.ErrOutcome) {
		err = cause
	}
	switch {
	case err == nil, errors.Is(err, kit.ErrQuiet):
		return kit.ExitOK
	case !errors.Is(err, kit.ErrDamaged):
		fmt.Fprintln(k.Err, "fencepost: "+kit.Line(err))
		k.Failed(err)
	}
	return kit.Status(err)
}

// release is the version of a release, which its builder passes to the linker (make release).
// A program that was installed by its version knows that by itself.
var release string

// version is what --version prints.
func version() string {
	v, goVersion, revision := "(devel)", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		v = cmp.Or(release, info.Main.Version, v)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("fencepost %s%s %s", v, revision, goVersion)
}
