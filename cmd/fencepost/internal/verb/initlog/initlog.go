// Package initlog has the verbs init and probe.
package initlog

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// Init returns the verb.
func Init(k *kit.Kit) *cobra.Command {
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
		Args:    kit.WantArgs(1, 1),
	}
	fl := c.Flags()
	for _, l := range limitFlags {
		kit.BytesVar(fl, l.of(&o.Limits), l.name, l.help)
	}
	kit.SpanVar(fl, &o.Grace, "grace", manifest.DefaultGrace.String(), 0, "how long unneeded objects stay, for slow readers; 0: not at all")
	fl.StringVar(&sibling, "sibling", "", "a log in the same bucket; do not probe again what was probed for it lately")
	k.FilesFlag(c)
	fl.BoolVar(&moved, "files-moved", false, "with --files: record that the files of a log that exists are there now")
	k.JSONFlag(c)
	kit.Needs(c, "files", "files-moved")
	kit.Excludes(c, "files-moved", "grace", "sibling", "max-object", "max-record", "max-cursor", "max-manifest") // they describe a new log
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.Grace == 0:
			o.Grace = -1 // none
		case o.Grace < manifest.MinGrace:
			return kit.Usage("--grace is %v; it must be 0 or at least %v", o.Grace, manifest.MinGrace)
		}
		st, err := k.Store(cmd.Context(), args[0], true)
		if err != nil {
			return err
		}
		if o.Files, err = k.Files(cmd.Context(), !moved); err != nil {
			return err
		}
		if moved {
			return filesMoved(cmd.Context(), k, st, o.Files)
		}
		o.Probe = k.Probing(args[0])
		if sibling != "" {
			if o.Probed, err = probedFor(cmd.Context(), k, sibling, args[0]); err != nil {
				return err
			}
		}
		says := "there is already"
		o.Made = func() { says = "made" }
		f, err := manifest.Init(cmd.Context(), st, &o)
		if errors.Is(err, fence.ErrLimit) {
			return kit.Usage("%w", err) // limits that contradict each other
		}
		if err != nil {
			return err
		}
		if err := asAsked(&f, fl, &o); err != nil {
			return err
		}
		warnOfRules(cmd.Context(), k, st)
		return k.Show(FormatJSON{f.Version, f.Requires, f.Log, f.Created, f.Limits, document.Duration(f.Grace), f.Files, f.Probe}, fmt.Appendf(nil, "%s log %v in %s\n", says, f.Log, st.Traits().Name))
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

// FormatJSON is what init prints as JSON.
type FormatJSON struct {
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
func filesMoved(ctx context.Context, k *kit.Kit, st, files store.Store) error {
	if _, err := manifest.Init(ctx, st, &manifest.InitOptions{Files: files, FilesMoved: true}); err != nil {
		return err
	}
	return k.Show(struct {
		Store string `json:"store"`
		Files string `json:"files"`
	}{st.Traits().Name, files.Traits().Name}, fmt.Appendf(nil, "the files of the log in %s are in %s now; check with fencepost verify --files\n", st.Traits().Name, files.Traits().Name))
}

// warnOfRules warns of rules of the bucket that would delete objects of the log. If the
// rules cannot be read, there is no warning and no error.
func warnOfRules(ctx context.Context, k *kit.Kit, st store.Store) {
	rules, _ := verify.Rules(ctx, st, nil)
	for _, f := range rules {
		k.Console.Note("warning: %s", f.What)
	}
}

// probedFor returns the report of the probe that a log in the same bucket has, or nil if it
// does not count any more.
func probedFor(ctx context.Context, k *kit.Kit, sibling, of string) (*probe.Report, error) {
	one, err := url.Parse(sibling)
	if err != nil {
		return nil, kit.Usage("--sibling is no URL: %v", err)
	}
	other, err := url.Parse(of)
	if err != nil {
		return nil, kit.Usage("%q is no URL: %v", of, err)
	}
	if one.Host == "" || !sameBucket(one, other) {
		return nil, kit.Usage("--sibling %s is not in the same bucket as %s", sibling, of)
	}
	st, err := k.Store(ctx, sibling, false)
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
