package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

func (a *app) initCmd() *cobra.Command {
	var o manifest.InitOptions
	var sibling string
	var moved bool
	c := &cobra.Command{
		Use:   "init [--json] URL",
		Short: "make a log",
		Long: `Init makes a log. Its limits and its grace period cannot be changed later. First it
probes the store for some seconds, and refuses one that lacks what the protocol
needs. If the log exists, init changes nothing; it fails if the log has other limits
than the flags ask for. Append makes logs too, with the default limits.

With --files the files of the log's table go to a store of their own, such as the root
of a Delta table. Many logs may share it. That cannot be changed later: every command
that writes, compacts or verifies the log needs --files too. --files-moved says that the
log or its files were moved, and that this is their store now. It makes no log, and takes
no flag that describes one.

It needs the rights of a writer, and with --sibling to read format.json there.`,
		Example: "fencepost init --max-record 1MiB s3://bucket/orders",
		Args:    wantArgs(1, 1),
	}
	fl := c.Flags()
	for _, l := range limitFlags {
		bytesVar(fl, l.of(&o.Limits), l.name, l.help)
	}
	spanVar(fl, &o.Grace, "grace", manifest.DefaultGrace.String(), 0, "how long unneeded objects stay, for slow readers; 0: not at all")
	fl.StringVar(&sibling, "sibling", "", "a log in the same bucket; do not probe again what was probed for it lately")
	files := a.fileStoreFlag(c)
	fl.BoolVar(&moved, "files-moved", false, "with --files: record that the files of a log that exists are there now")
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case moved && files.url == "":
			return usage("--files-moved goes with --files, which is not given")
		case moved && describes(fl):
			return usage("--files-moved is for a log that exists, and goes with --files only: leave out the flags that describe a new log")
		case o.Grace == 0:
			o.Grace = -1 // none
		case o.Grace < manifest.MinGrace:
			return usage("--grace is %v; it must be 0 or at least %v", o.Grace, manifest.MinGrace)
		}
		st, err := a.store(cmd.Context(), args[0], true)
		if err != nil {
			return err
		}
		if o.Files, err = files.open(cmd.Context(), !moved); err != nil {
			return err
		}
		if moved {
			return a.filesMoved(cmd.Context(), st, o.Files)
		}
		o.Probe = a.probing(args[0])
		if sibling != "" {
			if o.Probed, err = a.probedFor(cmd.Context(), sibling, args[0]); err != nil {
				return err
			}
		}
		says := "there is already"
		o.Made = func() { says = "made" }
		f, err := manifest.Init(cmd.Context(), st, &o)
		if errors.Is(err, fence.ErrLimit) {
			return &kindError{errUsage, err} // limits that contradict each other
		}
		if err != nil {
			return err
		}
		if err := asAsked(&f, fl, &o); err != nil {
			return err
		}
		a.warnOfRules(cmd.Context(), st)
		return a.show(formatJSON{f.Version, f.Requires, f.Log, f.Created, f.Limits, document.Duration(f.Grace), f.Files, f.Probe}, fmt.Appendf(nil, "%s log %v in %s\n", says, f.Log, st.Traits().Name))
	}
	return c
}

// limitFlags are the flags of init for the limits of a new log.
var limitFlags = []struct {
	name, help string
	of         func(*fence.Limits) *int64
}{
	{"max-object", "most bytes of one object, and of one append (default 64 MiB)", func(l *fence.Limits) *int64 { return &l.Object }},
	{"max-record", "most bytes of a record (default 16 MiB)", func(l *fence.Limits) *int64 { return &l.Record }},
	{"max-cursor", "most bytes of a cursor (default 4 KiB)", func(l *fence.Limits) *int64 { return &l.Cursor }},
	{"max-manifest", "most bytes of a manifest (default 8 MiB)", func(l *fence.Limits) *int64 { return &l.Manifest }},
}

// asAsked refuses a log that existed, and is not as the flags say.
func asAsked(f *manifest.Format, fl *pflag.FlagSet, o *manifest.InitOptions) error {
	if asked := max(o.Grace, 0); fl.Changed("grace") && f.Grace != asked {
		return fmt.Errorf("there is a log already, and its grace is %v, not %v; the grace of a log cannot be changed", f.Grace, asked)
	}
	for _, l := range limitFlags {
		if is, asked := *l.of(&f.Limits), *l.of(&o.Limits); asked != 0 && is != asked {
			return fmt.Errorf("there is a log already, and its --%s is %d, not %d; the limits of a log cannot be changed", l.name, is, asked)
		}
	}
	return nil
}

// describes tells whether a flag was given that describes a new log.
func describes(fl *pflag.FlagSet) (given bool) {
	fl.Visit(func(f *pflag.Flag) {
		given = given || f.Name == "grace" || f.Name == "sibling" || strings.HasPrefix(f.Name, "max-")
	})
	return given
}

// formatJSON is what init prints as JSON.
type formatJSON struct {
	Version  int               `json:"format"`
	Requires []string          `json:"requires,omitempty"`
	Log      fence.ID          `json:"log"`
	Created  time.Time         `json:"created"`
	Limits   fence.Limits      `json:"limits"`
	Grace    document.Duration `json:"grace"`
	Files    *manifest.Files   `json:"files,omitempty"`
	Probe    *probe.Report     `json:"probe,omitempty"`
}

// filesMoved records where the files of a log are now.
func (a *app) filesMoved(ctx context.Context, st, files store.Store) error {
	if _, err := manifest.Init(ctx, st, &manifest.InitOptions{Files: files, FilesMoved: true}); err != nil {
		return err
	}
	return a.show(struct {
		Store string `json:"store"`
		Files string `json:"files"`
	}{st.Traits().Name, files.Traits().Name}, fmt.Appendf(nil, "the files of the log in %s are in %s now; check with fencepost verify --files\n", st.Traits().Name, files.Traits().Name))
}

func (a *app) probeCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "probe [--json] URL",
		Short: "test whether a store has what the protocol needs",
		Long: `Probe tests whether a store keeps the promises that the protocol needs: creates and
swaps are atomic, and reads and listings see what was written. Some clients race on
objects below tmp/, for some seconds; probe deletes these objects again. Init does
the same. Both warn of lifecycle rules of the bucket that would delete objects of
the log, if they may read the rules.

Like init it makes the directory of a file:// URL if there is none.

It needs the rights to write and delete below tmp/.`,
		Example: "fencepost probe s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.store(cmd.Context(), args[0], true) // as init does, which it is tried before
			if e, ok := errors.AsType[*store.Error](err); ok && e.Hint == goneHint {
				e.Hint = probeHint
			}
			if err != nil {
				return err
			}
			report, err := probe.Run(cmd.Context(), st, a.probing(args[0]))
			a.warnOfRules(cmd.Context(), st)
			if a.json {
				v := struct {
					*probe.Report
					Error string `json:"error,omitempty"`
				}{Report: report}
				if err != nil {
					v.Error = line(err)
				}
				return cmp.Or(err, a.print(v))
			}
			if err != nil {
				return err // the report of a probe that was cut short would mislead
			}
			return a.write([]byte(report.String()))
		},
	}
	a.jsonFlag(c)
	return c
}

// warnOfRules warns of rules of the bucket that would delete objects of the log. If the
// rules cannot be read, there is no warning and no error.
func (a *app) warnOfRules(ctx context.Context, st store.Store) {
	rules, _ := verify.Rules(ctx, st, nil)
	for _, f := range rules {
		a.con.note("warning: %s", f.What)
	}
}

// probedFor returns the report of the probe that a log in the same bucket has, or nil if it
// does not count any more.
func (a *app) probedFor(ctx context.Context, sibling, of string) (*probe.Report, error) {
	one, err := url.Parse(sibling)
	if err != nil {
		return nil, usage("--sibling is no URL: %v", err)
	}
	other, err := url.Parse(of)
	if err != nil {
		return nil, usage("%q is no URL: %v", of, err)
	}
	if one.Host == "" || !sameBucket(one, other) {
		return nil, usage("--sibling %s is not in the same bucket as %s", sibling, of)
	}
	st, err := a.store(ctx, sibling, false)
	if err != nil {
		return nil, err
	}
	f, err := manifest.ReadFormat(ctx, st, nil)
	if err != nil || !f.Probe.Current(time.Now()) {
		return nil, err
	}
	return f.Probe, nil
}

// sameBucket compares two URLs but for their paths. An account that only one of them names may be that of the environment.
func sameBucket(a, b *url.URL) bool {
	p, q := a.Query(), b.Query()
	one, other := p.Get("account"), q.Get("account")
	return a.Scheme == b.Scheme && a.Host == b.Host && p.Get("endpoint") == q.Get("endpoint") && (one == other || one == "" || other == "")
}
