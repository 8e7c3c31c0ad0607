package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// formatGone is the remedy for a format.json that cannot be read. A backup's own says that it is a backup, and would make the log one.
const formatGone = "put an older version of format.json back, or the one that `fencepost restore` of a backup makes elsewhere; that of the backup itself would make the log a backup"

// Level says how bad a finding is.
type Level string

const (
	// OK needs nothing.
	OK Level = "ok"
	// Unseen was not looked at, and says why.
	Unseen Level = "unseen"
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

	// grouped tells whether there is a group of workers.
	grouped bool
	log     *inspect.Log
	format  manifest.Format
	// files is the store for the files of the table, if it was given and is the right one.
	files store.Store
	state *survey.Log
	// badLocks are the errors of newest locks that cannot be read.
	badLocks map[inspect.Kind]error
	// place is what is known of the published table. If the log is in it, heldAt is the version of the
	// manifest that the table holds.
	place  whereabouts
	heldAt uint64
}

func (x *examination) add(check string, level Level, remedy, format string, args ...any) {
	what := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ") // several errors
	x.found = append(x.found, Finding{check, level, what, remedy})
}

// cannot notes that a check could not be made.
func (x *examination) cannot(check string, err error, remedy string) {
	x.add(check, Warning, remedy, "not checked: %v", err)
}

// failed notes the error of a check. Only damage is a problem of the log. The store may not answer, or
// may deny access, and then the log can be sound.
func (x *examination) failed(check string, err error, remedy string) {
	if damage(err) {
		x.add(check, Problem, x.advice(err, remedy), "%v", err)
		return
	}
	x.cannot(check, err, x.advice(err, "run doctor again; if it says the same, look at the store and the network"))
}

// damage tells whether an error says that something is wrong with the log.
func damage(err error) bool {
	return slices.ContainsFunc([]error{fence.ErrCorrupt, fence.ErrFormat, fence.ErrLimit, manifest.ErrNotInitialized, store.ErrNotFound, store.ErrRange, store.ErrTooLarge},
		func(kind error) bool { return errors.Is(err, kind) })
}

// Examine checks the log in st. If there is a group of workers, it checks that, and the log beside it if
// there is one. It does not check the logs of the partitions, unless it reads everything. The error is ctx's, or
// that there is nothing to check; what is wrong is in the findings, which come in an order that does not change.
func Examine(ctx context.Context, st store.Store, opts *Options) ([]Finding, error) {
	x := begin(st, opts)
	x.lookForGroup(ctx)
	if x.grouped {
		x.compactors(ctx)
	}
	err := x.openFormat(ctx)
	switch {
	case x.grouped && errors.Is(err, manifest.ErrNotInitialized):
		return x.run(ctx, x.orphan, x.rules, x.probed, x.content)
	case x.grouped && err != nil && ctx.Err() == nil:
		x.failed("format", err, formatGone)
		return x.run(ctx, x.rules, x.probed, x.content)
	case err != nil:
		return x.found, err
	}
	return x.run(ctx, x.openFiles, x.rules, x.clock, x.probed, x.inside, x.content)
}

// run makes checks one after another.
func (x *examination) run(ctx context.Context, steps ...func(context.Context)) ([]Finding, error) {
	for _, step := range steps {
		if ctx.Err() != nil {
			break
		}
		step(ctx)
	}
	return x.found, context.Cause(ctx)
}

// inside checks what is in the log.
func (x *examination) inside(ctx context.Context) {
	if x.survey(ctx) {
		_, _ = x.run(ctx, x.leader, x.takeovers, x.compaction, x.checkpoints, x.table, x.pins, x.growth, x.uploads)
		return
	}
	_, _ = x.run(ctx, x.leader, x.takeovers, x.uploads)
	x.add("others", Warning, "", "not checked without the state: compaction, checkpoints, the published table, pins and growth")
}

func begin(st store.Store, opts *Options) *examination {
	x := &examination{st: st, badLocks: map[inspect.Kind]error{}}
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
	if x.log, err = inspect.Open(ctx, x.st, nil); err != nil {
		return err
	}
	x.format = x.log.Format()
	if x.format.Backup {
		x.add("format", OK, "", "a backup of log %v, made %s; it is read only", x.format.Log, when(x.format.Created))
	} else {
		x.add("format", OK, "", "log %v, made %s", x.format.Log, when(x.format.Created))
	}
	if x.format.Grace == 0 {
		x.add("grace", Warning, "if the store is versitygw, MinIO or another whose listings are not atomic, make a new log with a grace period, and copy the records there",
			"the grace period is 0: slow readers are not waited for, and manifests are deleted at once")
	} else {
		x.add("grace", OK, "", "%v", x.format.Grace)
	}
	return nil
}

// orphan looks for a log beside the group that has lost its format.json.
func (x *examination) orphan(ctx context.Context) {
	if err := survey.Orphaned(ctx, x.st, nil); err != nil {
		x.failed("format", err, formatGone)
	}
}

// openFiles looks whether the store for the files of the table is the right one.
func (x *examination) openFiles(ctx context.Context) {
	const check = "store for files"
	if x.format.Files == nil && x.given() && !x.grouped { // the logs of partitions may need it
		x.cannot(check, errors.New("the log keeps the files of its table in its own store"), "leave out --files")
		x.Files = nil
	}
	if x.format.Files == nil || !x.given() {
		return
	}
	view, err := x.log.Files(ctx, x.Files)
	switch {
	case errors.Is(err, manifest.ErrFiles):
		x.add(check, Problem, "first check the URL after --files: the log names "+x.format.Files.Store, "%v", err)
	case err != nil:
		x.failed(check, err, "run `fencepost verify --files`")
	default:
		x.files = view
		x.add(check, OK, "", "it has the mark of the log")
	}
}

// noFiles says why nobody looks into the store for the files of the log, and what to do.
func (x *examination) noFiles() (remedy string, why error) {
	if x.given() {
		return "first see what is said of the store for files", errors.New("the store after --files is not that of the log, or cannot be read")
	}
	return "give its URL with --files", errors.New("that store is " + x.format.Files.Store)
}

// given tells whether there is a store after --files that the log, or that of a partition, may need.
func (x *examination) given() bool { return !store.IsNil(x.Files) }

// rules looks for lifecycle rules of the bucket, and of that of the files.
func (x *examination) rules(ctx context.Context) {
	x.rulesOf(ctx, x.st, "lifecycle rules")
	const second = "lifecycle rules of the store for files"
	switch {
	case x.files != nil:
		x.rulesOf(ctx, x.files, second)
	case x.format.Files != nil:
		remedy, err := x.noFiles()
		x.cannot(second, err, remedy)
	case x.grouped && x.given() && !x.Deep:
		x.cannot(second, errors.New("only the logs of the partitions tell what they have there"), "run doctor with --deep")
	}
}

// limitRule is what to do about a lifecycle rule. Other data in the bucket may need it.
const limitRule = "limit the rule to other prefixes. Remove it only if no other data in the bucket needs it"

func (x *examination) rulesOf(ctx context.Context, st store.Store, check string) {
	found, err := group.Rules(ctx, st, nil)
	for _, f := range found {
		x.add(check, Problem, limitRule, "%s", f.What)
	}
	switch {
	case err != nil:
		x.noRules(check, err, "objects of the log")
	case len(found) == 0:
		x.add(check, OK, "", "none deletes objects of the log")
	}
}

// noRules notes that lifecycle rules could not be read.
func (x *examination) noRules(check string, err error, of string) {
	if errors.Is(err, errors.ErrUnsupported) {
		x.add(check, Unseen, "", "this store is not asked for them: check yourself that no rule deletes %s by age", of)
		return
	}
	if errors.Is(err, store.ErrDenied) {
		x.cannot(check, errors.New("these credentials may not read them"), "allow s3:GetLifecycleConfiguration (`doctor` in docs/policies.md), or check yourself that no rule deletes "+of+" by age")
		return
	}
	x.failed(check, err, "")
}

// maxSkew is a difference of clocks that needs no attention.
const maxSkew = 30 * time.Second

// clock compares the store's time of day with this machine's.
func (x *examination) clock(ctx context.Context) {
	_, info, err := store.Read(ctx, x.st, inspect.Format.Prefix(), &store.ReadOptions{Limit: 1 << 20})
	switch {
	case err != nil:
		x.failed("clock", err, "")
	case info.Date.IsZero():
		x.add("clock", Unseen, "", "the store does not tell its time")
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

// unwritten says what cannot be seen without a write.
const unwritten = "nothing was written, so a full disk, a quota or a right that is missing is not seen"

// probed says what is known of the store's promises.
func (x *examination) probed(ctx context.Context) {
	const check = "store"
	switch {
	case x.Deep:
		x.Progress("probing", 0, 0)
		r, err := probe.Run(ctx, x.st, x.Probe)
		switch {
		case errors.Is(err, probe.ErrRefused):
			x.add(check, Problem, "acknowledged records can be lost here: do what the probe says, or use another store. docs/stores.md names some", "the probe failed: %v", err)
		case errors.Is(err, store.ErrDenied):
			x.cannot(check, err, "allow to get, put, list and delete below "+inspect.Tmp.Prefix()+", as `doctor` in docs/policies.md does; or leave out --deep")
		case err != nil:
			x.failed(check, err, "")
		default:
			x.add(check, OK, "", "it keeps %d promises", len(r.Kept))
		}
	case x.format.Log == fence.ID{}:
		x.add(check, Unseen, "", unwritten+". Making a group probes the store; --deep probes it again")
	case x.format.Probe == nil:
		x.add(check, Warning, "run `fencepost probe`, or doctor --deep", "it was not probed when the log was made")
	default:
		x.add(check, Unseen, "", unwritten+". It kept %d promises when it was probed, %s; --deep probes it again", len(x.format.Probe.Kept), when(x.format.Probe.At))
	}
}

// survey reads the state, and reports false if it cannot be read.
func (x *examination) survey(ctx context.Context) bool {
	const check = "state"
	s, err := survey.Take(ctx, x.st, &survey.Options{
		Objects: true, Unfolded: true, Progress: func(n int) { x.Progress("listing", int64(n), 0) },
		BadLock: func(of inspect.Kind, err error) { x.badLocks[of] = err },
	})
	if err != nil {
		x.failed(check, err, "run `fencepost verify`, which names what is damaged and says what to do")
		return false
	}
	x.state = s
	x.add(check, OK, "", "%d %s, the tail is %v, manifest %d", s.End, english.PluralWord(int(min(s.End, 2)), "record", ""), s.Tail, s.Version)
	return true
}

// content reads everything, if that is wanted.
func (x *examination) content(ctx context.Context) {
	const check = "content"
	if !x.Deep {
		if x.log != nil {
			x.outline(ctx)
		}
		x.add(check, Unseen, "", "not read; --deep reads everything, and `fencepost verify --part today/30` a part each day")
		return
	}
	if x.format.Files != nil && x.given() && x.files == nil { // all files would seem to be lost
		remedy, err := x.noFiles()
		x.cannot(check, err, remedy)
		return
	}
	o := &verify.Options{Files: x.Files, Hooks: verify.Hooks{Progress: func(p verify.Progress) { x.Progress("reading "+p.Stage, p.Done, p.Total) }}}
	var r *verify.Report
	var err error
	if x.grouped {
		var all *group.Report
		all, err = group.Check(ctx, x.st, &group.CheckOptions{Verify: o})
		r = &all.Report
	} else {
		r, err = verify.Run(ctx, x.st, o)
	}
	x.report(check, r, err, fmt.Sprintf("%d bytes were read; nothing is wrong", r.Bytes))
}

// outline compares what is listed with what the log names.
func (x *examination) outline(ctx context.Context) {
	o := &verify.Options{Outline: true, Hooks: verify.Hooks{Progress: func(p verify.Progress) { x.Progress("comparing "+p.Stage, p.Done, p.Total) }}}
	if x.files != nil {
		o.Files = x.Files
	}
	r, err := verify.Run(ctx, x.st, o)
	x.report("objects", r, err, "each that the log names is there, with its size")
}

// report adds what verify has found.
func (x *examination) report(check string, r *verify.Report, err error, fine string) {
	for _, f := range r.Problems { // also those that were found before an error
		x.add(check, Problem, f.Remedy, "%s", strings.TrimPrefix(f.Key+": "+f.What, ": "))
	}
	if r.MoreProblems > 0 {
		x.add(check, Problem, "", "and %d more", r.MoreProblems)
	}
	switch {
	case err != nil:
		x.failed(check, err, "run `fencepost verify`")
	case r.OK():
		x.add(check, OK, "", "%s", fine)
	}
}

// ages lists the objects of a kind. It returns a function that tells the age of one by the store's
// clock. If the store does not tell the time, the age is counted from at, which the writer of the object
// has noted: a machine whose clock may be wrong.
func (x *examination) ages(ctx context.Context, of inspect.Kind) (func(key string, at time.Time) time.Duration, error) {
	known := map[string]time.Duration{}
	for info, err := range store.ListAll(ctx, x.st, of.Prefix(), nil, nil) {
		if err != nil {
			return nil, err
		}
		if age, ok := info.Age(); ok {
			known[info.Key] = age
		}
	}
	return func(key string, at time.Time) time.Duration {
		if age, ok := known[key]; ok {
			return age
		}
		return x.Now().Sub(at)
	}, nil
}

func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05Z07:00") }
