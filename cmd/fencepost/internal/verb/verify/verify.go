// Package verify is the verb verify.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// repairFrom copies from a backup what a report calls damaged or missing.
func repairFrom(ctx context.Context, k *kit.Kit, url string, st store.Store, r *verify.Report, o *verify.Options) error {
	from, err := k.Store(ctx, url, false)
	if err != nil || r.OK() {
		return err
	}
	return backup.Repair(ctx, from, st, r, o)
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	var isCopy, noContent, repair, dry bool
	var atOnce int
	var metrics, from string
	var part partValue
	c := &cobra.Command{
		Use:   "verify [--copy] [--no-content] [--part K/N] [--repair [--from BACKUP] [--dry-run]] [--json] URL",
		Short: "check the whole log for damage",
		Long: `Verify reads the whole log and checks every checksum, sequence number, seal and
reference. It also checks those of files, of pinned versions, and of older versions that
readers may still use. It prints each problem with its key and a remedy; the exit status
is then 65. What crashes and late requests have left is listed as notes, and is no
problem. Verify may run beside writers and compactors. Without --repair it changes nothing.

With --part it reads only a part of the segments, files and seals: 3/30 is the third of
30 parts, and today/30 another one each day. So a daily job reads everything once in 30
days, and finds rot while a backup is still sound.

With --no-content it does not read the files of the table, and checks only that they
are there with their size.

With --copy the log is a copy of one version, as a backup is. Then it is no problem
that the versions before it are missing.

With --repair it repairs what needs no guess, and prints what it did. It creates lost
seals that the manifest names. It writes lost pages of the manifest's lists again if an
older version has their entries, alone or with the log after it. It deletes old locks that
cannot be read. With --dry-run it prints what it would do. If all is repaired the exit
status is 0. A wrong hint needs no repair: openers read from the floor instead, and the
next checkpoint of a writer replaces it. What nobody names, a compactor deletes.

With --from too it copies what is damaged or missing from a backup, if that makes the log
whole there. It replaces nothing that is sound, and needs the right to read BACKUP.

If the URL is that of a group of workers, it checks every object of the group, and the
log of each partition, --logs of them at a time. The options hold for each log, and
the group's own objects are never repaired.

With --metrics it writes what it found to FILE once it has read everything. That is for
the textfile collector of Prometheus's node exporter: FILE must end in .prom there.

It needs the right to read. To repair it needs the rights of a writer and a compactor.`,
		Example: "fencepost verify s3://bucket/orders\n  fencepost verify --part today/30 s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := k.Store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			k.PassedOver(args[0])
			grouped, err := group.Exists(cmd.Context(), st, nil)
			if err != nil && !errors.Is(err, store.ErrDenied) {
				return err // who may read only the log cannot know
			}
			if !grouped && cmd.Flags().Changed("logs") {
				return kit.Usage("--logs is for a group of workers, and there is none at %s", args[0])
			}
			if grouped && from != "" {
				return kit.Usage("--from is for one log: give the URL of the partition's log, and of its backup")
			}
			second, err := k.Files(cmd.Context(), false)
			if err != nil {
				return err
			}
			hooks := verify.Hooks{Progress: func(p verify.Progress) {
				k.Console.Progress("reading "+p.Stage, p.Done, p.Total, p.Stage == "segments" || p.Stage == "chain")
			}}
			hooks, save, err := verifyMetrics(metrics, st.Traits().Name, k.Gauges.Verify(hooks))
			if err != nil {
				return err
			}
			o := &verify.Options{Files: second, Copy: isCopy, NoContent: noContent, Part: part.k, Parts: part.n, Repair: repair, DryRun: dry, Hooks: hooks}
			r := &group.Report{}
			var summary *group.Summary
			if grouped {
				r, err = group.Check(cmd.Context(), st, &group.CheckOptions{Verify: o, Concurrency: atOnce})
				summary = &r.Group
			} else {
				var one *verify.Report
				if one, err = verify.Run(cmd.Context(), st, o); err == nil && from != "" {
					err = repairFrom(cmd.Context(), k, from, st, one, o)
				}
				r.Report = *one
			}
			k.Console.Done()
			if err != nil {
				// The problems that were found so far matter more than this error.
				for _, p := range r.Problems {
					k.Console.Note("problem: %v", p)
				}
				if errors.Is(err, manifest.ErrNotInitialized) {
					err = kit.OnlyLock(cmd.Context(), st, err)
				}
				return err
			}
			if err := save(); err != nil {
				k.Console.Note("the metrics are not written: %s", kit.Line(err))
			}
			err = k.Show(verifyJSON{r.Report, summary}, verdict(&r.Report, summary))
			if !r.OK() {
				return kit.ErrDamaged
			}
			return err
		},
	}
	c.Flags().BoolVar(&isCopy, "copy", false, "the log is a copy of one version, such as one just restored (no need in a backup)")
	k.FilesFlag(c)
	c.Flags().BoolVar(&noContent, "no-content", false, "do not read the files of the table")
	c.Flags().Var(&part, "part", "read only part `K/N` of segments, files and seals; today/N is another one each day")
	c.Flags().BoolVar(&repair, "repair", false, "repair what can be repaired without a guess")
	c.Flags().StringVar(&from, "from", "", "with --repair: copy damaged and missing objects from the backup in `URL`")
	c.Flags().BoolVar(&dry, "dry-run", false, "with --repair: change nothing; print what would be done")
	c.Flags().StringVar(&metrics, "metrics", "", "write metrics of what was found to `FILE`, which ends in .prom")
	k.ListenFlag(c)
	kit.CountVar(c.Flags(), &atOnce, "logs", 4, "of a group: how many logs to check at once")
	k.JSONFlag(c)
	kit.Needs(c, "repair", "dry-run", "from")
	return c
}

// verifyJSON is what --json prints.
type verifyJSON struct {
	verify.Report
	Group *group.Summary `json:"group,omitempty"`
}

// verifyMetrics returns hooks that measure a verification, and what writes the metrics to a file.
func verifyMetrics(file, url string, next verify.Hooks) (hooks verify.Hooks, save func() error, err error) {
	if file == "" {
		return next, func() error { return nil }, nil
	}
	if dir, err := os.Stat(filepath.Dir(file)); err != nil || !dir.IsDir() || filepath.Ext(file) != ".prom" {
		return next, nil, kit.Usage("--metrics %s: write a file that ends in .prom, in a directory that exists", file)
	}
	reg := prometheus.NewRegistry()
	m, err := promhooks.New(prometheus.WrapRegistererWith(prometheus.Labels{"url": url}, reg), nil)
	if err != nil {
		return next, nil, err
	}
	own := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := reg.Gather()
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "fencepost_verify_") }), err
	})
	return m.Verifier(next), func() error { return prometheus.WriteToTextfile(file, own) }, nil
}

func verdict(r *verify.Report, g *group.Summary) []byte {
	var b bytes.Buffer
	left := r.MoreProblems
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem: %v\n", p)
		if !p.Repaired {
			left++
		}
	}
	if r.MoreProblems > 0 {
		fmt.Fprintf(&b, "problem: and %d more\n", r.MoreProblems)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %v\n", n)
	}
	if r.MoreNotes > 0 {
		fmt.Fprintf(&b, "note: and %d more\n", r.MoreNotes)
	}
	if g != nil {
		fmt.Fprintf(&b, "group: %s, assignment %d, %s; read %s of the group; %s with %s: %s, %s of the chains, %s; in %s\n",
			kit.Plural(g.Partitions, "partition"), g.Assignment, kit.Plural(g.Members, "member"), kit.Plural(g.Objects, "object"), kit.Plural(g.Logs, "log"), kit.Plural(int(g.Records), "record"),
			kit.Plural(r.Segments, "segment"), kit.Plural(r.Slots, "object"), kit.Size(r.Bytes), kit.Brief(r.Took))
	} else {
		fmt.Fprintf(&b, "read %s: %s, %s of the chain up to %v, %s; %s, %s, manifest %d; in %s\n",
			kit.RecordRange(r.First, r.End), kit.Plural(r.Segments, "segment"), kit.Plural(r.Slots, "object"), r.Tail, kit.Size(r.Bytes), kit.Plural(r.Seals, "seal"), kit.Plural(r.Locks, "lock"), r.Manifest, kit.Brief(r.Took))
	}
	if r.Parts > 1 {
		fmt.Fprintf(&b, "of segments, files and seals this was part %d of %d\n", r.Part, r.Parts)
	}
	switch fixed := len(r.Problems) + r.MoreProblems - left; {
	case fixed > 0:
		fmt.Fprintf(&b, "%s repaired, %d left\n", kit.Plural(fixed, "problem"), left)
	case left > 0:
		fmt.Fprintf(&b, "%s\n", kit.Plural(left, "problem"))
	default:
		b.WriteString("nothing is wrong\n")
	}
	return b.Bytes()
}

// partValue is a flag: part k of n, from 1 on.
type partValue struct{ k, n int }

func (p *partValue) String() string {
	if p.n == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.k, p.n)
}

// Type is what usage shows for the value.
func (p *partValue) Type() string { return "K/N" }

// Set reads 3/30 or today/30.
func (p *partValue) Set(s string) error {
	which, of, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(of)
	if !ok || err != nil || n < 1 || n > 100_000 {
		return errors.New("want K/N or today/N, such as 3/30")
	}
	k := 1 + int(time.Now().Unix()/86400%int64(n))
	if which != "today" {
		if k, err = strconv.Atoi(which); err != nil || k < 1 || k > n {
			return fmt.Errorf("want a part from 1 to %d, or today", n)
		}
	}
	p.k, p.n = k, n
	return nil
}
