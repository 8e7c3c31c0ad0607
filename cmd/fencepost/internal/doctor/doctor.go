package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// Level says how bad a finding is.
type Level string

const (
	// OK needs nothing.
	OK Level = "ok"
	// Warning wants attention: something waits, grows, or was not checked.
	Warning Level = "warning"
	// Problem is damage, or what leads to it, or keeps the log from its work.
	Problem Level = "problem"
)

// Finding is the outcome of a check.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	What   string `json:"what"`
	Remedy string `json:"remedy,omitempty"`
}

// Options of Examine. Nil works like the zero value.
type Options struct {
	// Deep probes the store and verifies the whole log.
	Deep bool
	// Probe are the options for the probe of Deep.
	Probe *probe.Options
	// Files is the store for the files of the table, if the log keeps them apart.
	Files store.Store
	// Progress is called now and then; a total of 0 is not known.
	Progress func(what string, done, total int64)
	// Now is the time of day, time.Now by default.
	Now func() time.Time
}

// examination is one call of Examine.
type examination struct {
	Options
	st    store.Store
	found []Finding

	format manifest.Format
	state  *survey.Survey
	lag    *survey.Lag
	// place is what is known of the published table. If the log is in it, heldAt is the version of the
	// manifest that the table holds.
	place  whereabouts
	heldAt uint64
}

func (x *examination) add(check string, level Level, remedy, format string, args ...any) {
	x.found = append(x.found, Finding{check, level, fmt.Sprintf(format, args...), remedy})
}

// cannot notes that a check could not be made.
func (x *examination) cannot(check string, err error, remedy string) {
	x.add(check, Warning, remedy, "not checked: %v", err)
}

// Examine checks the log in st. The error is ctx's, or that there is no log to check; what is
// wrong with the log is in the findings, which come in an order that does not change.
func Examine(ctx context.Context, st store.Store, opts *Options) ([]Finding, error) {
	x := begin(st, opts)
	if err := x.openFormat(ctx); err != nil {
		return x.found, err
	}
	steps := []func(context.Context){x.rules, x.clock, x.probed}
	if x.survey(ctx) {
		steps = append(steps, x.leader, x.takeovers, x.compaction, x.checkpoints, x.table, x.pins, x.growth, x.uploads)
	}
	for _, step := range append(steps, x.content) {
		if ctx.Err() != nil {
			return x.found, context.Cause(ctx)
		}
		step(ctx)
	}
	return x.found, context.Cause(ctx)
}

func begin(st store.Store, opts *Options) *examination {
	x := &examination{st: st}
	if opts != nil {
		x.Options = *opts
	}
	if x.Progress == nil {
		x.Progress = func(string, int64, int64) {}
	}
	if x.Now == nil {
		x.Now = time.Now
	}
	return x
}

// openFormat reads what a log is.
func (x *examination) openFormat(ctx context.Context) (err error) {
	x.format, err = manifest.ReadFormat(ctx, x.st, nil)
	if err != nil {
		return err
	}
	x.add("format", OK, "", "log %v, made %s", x.format.Log, when(x.format.Created))
	if x.format.Grace == 0 {
		x.add("grace", Warning, "if the store is versitygw, MinIO or another whose listings are not atomic, make a new log with a grace period, and copy the records there",
			"the grace period is 0: slow readers are not waited for, and manifests are deleted at once")
	} else {
		x.add("grace", OK, "", "%v", x.format.Grace)
	}
	return nil
}

// rules looks for lifecycle rules of the bucket.
func (x *examination) rules(ctx context.Context) {
	found, err := verify.Rules(ctx, x.st, nil)
	for _, f := range found {
		x.add("lifecycle rules", Problem, f.Remedy, "%s", f.What)
	}
	switch {
	case errors.Is(err, store.ErrDenied):
		x.cannot("lifecycle rules", errors.New("these credentials may not read them"), "allow s3:GetLifecycleConfiguration, or check yourself that no rule deletes objects of the log by age")
	case err != nil:
		x.cannot("lifecycle rules", err, "")
	case len(found) == 0:
		x.add("lifecycle rules", OK, "", "none that the store tells deletes objects of the log")
	}
}

// maxSkew is a difference of clocks that needs no attention.
const maxSkew = 30 * time.Second

// clock compares the store's time of day with this machine's.
func (x *examination) clock(ctx context.Context) {
	_, info, err := store.Read(ctx, x.st, layout.FormatKey, &store.ReadOptions{Limit: 1 << 20})
	switch {
	case err != nil:
		x.cannot("clock", err, "")
	case info.Date.IsZero():
		x.add("clock", OK, "", "the store does not tell its time")
	default:
		skew := x.Now().Sub(info.Date).Abs()
		if skew > maxSkew {
			x.add("clock", Warning, "correct the clock of this machine or the store's: retention by age and the times of records depend on them, nothing else does",
				"this machine's time of day and the store's differ by %v", skew.Round(time.Second))
			return
		}
		x.add("clock", OK, "", "as the store's, within %v", maxSkew)
	}
}

// probed says what is known of the store's promises.
func (x *examination) probed(ctx context.Context) {
	const remedy = "use another store: on this one acknowledged records can be lost. docs/stores.md names some"
	switch {
	case x.Deep:
		x.Progress("probing", 0, 0)
		r, err := probe.Run(ctx, x.st, x.Probe)
		if err != nil {
			level := Problem
			if errors.Is(err, store.ErrDenied) {
				level = Warning
			}
			x.add("store", level, remedy, "the probe failed: %v", err)
			return
		}
		x.add("store", OK, "", "it keeps %d promises", len(r.Kept))
	case x.format.Probe == nil:
		x.add("store", Warning, "run `fencepost probe`, or doctor --deep", "it was not probed when the log was made")
	default:
		x.add("store", OK, "", "it kept %d promises when it was probed, %s; --deep probes it again", len(x.format.Probe.Kept), when(x.format.Probe.At))
	}
}

// survey reads the state, and reports false if it cannot be read.
func (x *examination) survey(ctx context.Context) bool {
	const check, remedy = "state", "run `fencepost verify`, which names what is damaged and says what to do"
	s, err := survey.Take(ctx, x.st, &survey.Options{Objects: true, Progress: func(n int) { x.Progress("listing", int64(n), 0) }})
	if err == nil {
		x.lag, err = survey.Behind(ctx, x.st)
	}
	if err != nil {
		if ctx.Err() == nil {
			x.add(check, Problem, advice(err, remedy), "%v", err)
		}
		return false
	}
	x.state = s
	x.add(check, OK, "", "%d %s, the tail is %v, manifest %d", s.Offset, english.PluralWord(int(min(s.Offset, 2)), "record", ""), s.Tail, s.Manifest.Version)
	return true
}

// content reads everything, if that is wanted.
func (x *examination) content(ctx context.Context) {
	if !x.Deep {
		x.add("content", OK, "", "not read; --deep reads everything, and `fencepost verify --part today/30` a part each day")
		return
	}
	r, err := verify.Run(ctx, x.st, &verify.Options{Files: x.Files, Hooks: verify.Hooks{Progress: func(p verify.Progress) { x.Progress("reading "+p.Stage, p.Done, p.Total) }}})
	if err != nil {
		x.cannot("content", err, "")
		return
	}
	for _, f := range r.Problems {
		x.add("content", Problem, f.Remedy, "%s: %s", f.Key, f.What)
	}
	if r.MoreProblems > 0 {
		x.add("content", Problem, "", "and %d more", r.MoreProblems)
	}
	if r.OK() {
		x.add("content", OK, "", "%d bytes were read; nothing is wrong", r.Bytes)
	}
}

func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }
