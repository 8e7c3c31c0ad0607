package manifest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

const (
	// DefaultGrace is ten minutes.
	DefaultGrace = 10 * time.Minute
	// MinGrace is longer than a listing takes within the store. The listings of some
	// stores are not atomic (versitygw, MinIO). Such a listing shows everything that is
	// there all the while. It may miss both a manifest that is deleted under it and the
	// one that has replaced it. So a replaced manifest is kept for the grace period.
	MinGrace = time.Second
)

// InitOptions describe a new log. The zero value works. But for Files and FilesMoved, they have no
// effect on a log that exists.
type InitOptions struct {
	// Limits that are 0 become those of [fence.DefaultLimits].
	Limits fence.Limits
	// Grace is [DefaultGrace] if 0, and otherwise at least [MinGrace]. A negative one means
	// none: only for tests, on a store whose listings are atomic.
	Grace time.Duration
	// Files is a store of its own for the files of the log's table; nil keeps them in the log's
	// store. Many logs may share one. Neither store may lie below the other: see docs/stores.md.
	// It is recorded in the log, and everybody who uses the files has to give it. For a log
	// that exists it must be what that log has.
	Files store.Store
	// FilesMoved records that Files has the files of the log in st from now on: after the log, its files or both were
	// moved, or if the mark that says so was deleted. The log must be there, and nothing else may use it meanwhile. Init
	// copies no files; package verify tells whether all are there. If another call has changed the mark since this one
	// began, the error is [ErrFiles], and the mark stays as it is.
	FilesMoved bool
	// Probe configures the probe of the store, and of Files without Open. It cannot be left out: on a store that
	// ignores conditions data would be lost without a sign.
	Probe *probe.Options
	// Probed is the report of a probe that another part of the same store has passed, such as
	// that of the group to which the log belongs, or of another log in the bucket
	// ([Format].Probe). Then Init does not probe again, unless the report does not count any more:
	// see [probe.Report.Current]. Default nil: each log probes for itself.
	Probed *probe.Report
	// Made, if not nil, is called when Init has made the log, and not when the log existed or another
	// process was first. If Init returns an error, the log may be there all the same. RunGroup calls it for
	// each log that it makes, perhaps from several goroutines at once.
	Made func()
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock tells when the log was created; the machine's by default. It is also the Clock of Settle and Probe,
	// unless those have one.
	Clock clock.Clock
}

// Validate returns an error that is [ErrOptions], with all that is wrong, if [Init] would
// refuse the options. It does no I/O; nil is valid.
func (o *InitOptions) Validate() error {
	_, err := o.withDefaults()
	return err
}

func (o *InitOptions) withDefaults() (InitOptions, error) {
	v := *cmp.Or(o, &InitOptions{})
	v.Limits.Object = cmp.Or(v.Limits.Object, fence.DefaultLimits().Object)
	v.Limits.Record = cmp.Or(v.Limits.Record, min(fence.DefaultLimits().Record, max(v.Limits.Object-binary.MaxVarintLen32, 0)))
	v.Limits.Cursor = cmp.Or(v.Limits.Cursor, fence.DefaultLimits().Cursor)
	v.Limits.Manifest = cmp.Or(v.Limits.Manifest, fence.DefaultLimits().Manifest)
	v.Clock = clock.Or(v.Clock)
	settle := *cmp.Or(v.Settle, &store.SettleOptions{})
	settle.Clock = cmp.Or(settle.Clock, v.Clock)
	probing := *cmp.Or(v.Probe, &probe.Options{})
	probing.Clock = cmp.Or(probing.Clock, v.Clock)
	v.Settle, v.Probe = &settle, &probing
	var bad []error
	switch {
	case v.Grace == 0:
		v.Grace = DefaultGrace
	case v.Grace < 0:
		v.Grace = 0
	case v.Grace < MinGrace:
		bad = append(bad, fmt.Errorf("%w: a grace of %v is too short: it must be at least %v, which a listing may take, or what it is about to show could be deleted under it", ErrOptions, v.Grace, MinGrace))
	}
	if err := layout.CheckLimits(v.Limits); err != nil {
		bad = append(bad, fmt.Errorf("%w: Limits: %w", ErrOptions, err))
	}
	if err := errors.Join(v.Probe.Validate(), v.Settle.Validate()); err != nil {
		bad = append(bad, fmt.Errorf("%w: %w", ErrOptions, err))
	}
	return v, errors.Join(bad...)
}

// Init makes st a log, unless it is one already, and returns its format. It first probes
// the store, and refuses one that breaks a promise that the protocol needs. If several
// processes call it at once, one creates the log and all return the same format.
//
// Errors: [ErrOptions], also if the place has too long a prefix (see [MaxKey]) or lies in a folder that another log keeps for itself, as far as the store shows it; [ErrFiles]; [ErrBackup]; [ErrRestoring]; probe.ErrRefused; [fence.ErrFormat]; [fence.ErrCorrupt],
// also if there is a log whose format.json is missing.
func Init(ctx context.Context, st store.Store, opts *InitOptions) (Format, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return Format{}, err
	}
	f, err := o.init(ctx, st)
	// guard:backup-read-only. A place whose format.json says that it is a backup is opened by no
	// writer, compactor or holder of a pin.
	//
	//mutant:replace err == nil && f.Backup => false
	if err == nil && f.Backup {
		return Format{}, fmt.Errorf("%w: %s", ErrBackup, st.Traits().Name)
	}
	if err == nil {
		err = files.Fit(st, o.Files, f.Files != nil, f.filesHome())
	}
	if err == nil && o.FilesMoved {
		err = o.moved(ctx, st, &f)
	}
	if err != nil {
		return Format{}, err
	}
	return f, nil
}

// moved marks o.Files as the store that has the files of the log in st.
func (o *InitOptions) moved(ctx context.Context, st store.Store, f *Format) error {
	if f.Files == nil {
		return fmt.Errorf("%w: FilesMoved needs Files", ErrOptions)
	}
	seen, err := files.See(ctx, o.Files, f.Log, o.Settle) // now: a probe takes seconds, or as long as the process sleeps
	if err != nil {
		return err
	}
	report, err := files.Probe(ctx, o.Files, o.Probe, o.Clock.Wall(), o.Settle)
	if err != nil {
		return err
	}
	return files.Replace(ctx, o.Files, f.Log, st.Traits(), report, seen, o.Settle)
}

// init returns the format of a log that exists now.
func (o *InitOptions) init(ctx context.Context, st store.Store) (Format, error) {
	f, err := ReadFormat(ctx, st, o.Settle)
	if !errors.Is(err, ErrNotInitialized) || o.FilesMoved {
		return f, err
	}
	// guard:init-lost. Init creates no format.json under a prefix that already has manifests or log
	// objects.
	//
	//mutant:replace []string{layout.ManifestPrefix, layout.DataPrefix} => []string{}
	for _, prefix := range []string{layout.ManifestPrefix, layout.DataPrefix} {
		for info, err := range store.ListAll(ctx, st, prefix, nil, o.Settle) {
			if err != nil {
				return Format{}, err
			}
			// Somebody may have created the log since format.json was read.
			if f, err := ReadFormat(ctx, st, o.Settle); !errors.Is(err, ErrNotInitialized) {
				return f, err
			}
			return Format{}, document.Corrupt(layout.FormatKey, "it is missing, but %s is there; if that is a log's, put an older version of it back, or the one that `fencepost restore` of a backup makes elsewhere, or remove everything under %s if the log is not needed; if it is not, choose another prefix",
				info.Key, st.Traits().Name)
		}
	}
	if err := roomy(st, MaxKey); err != nil {
		return Format{}, err
	}
	if !store.IsNil(o.Files) {
		if err := roomyFiles(o.Files); err != nil {
			return Format{}, err
		}
	}
	// guard:init-within. Init makes no log in a folder that another log keeps for itself, such as data/, as far as the store
	// shows what is above the place. Without this check: a program means the prefix orders, and opens a writer in orders/data;
	// a log is made there, and its locks and format.json are among the slots of the log in orders, whose readers
	// and compactors take them for damage.
	//
	//mutant:replace err := within(ctx, st, o.Settle); err != nil => false
	if err := within(ctx, st, o.Settle); err != nil {
		return Format{}, err
	}
	f, err = o.format(ctx, st)
	if err != nil {
		return Format{}, err
	}
	body, err := f.encode()
	if err != nil {
		return Format{}, err
	}
	// The log's id is the nonce: no two bodies are equal.
	_, err = store.Create(ctx, st, layout.FormatKey, body, &store.WriteOptions{Settle: o.Settle})
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		return Format{}, err
	}
	made, err := ReadFormat(ctx, st, o.Settle)
	switch own := made.Log == f.Log; {
	case err == nil && own && o.Made != nil:
		o.Made()
	case err == nil && !own && f.Files != nil:
		_ = files.Remove(ctx, o.Files, f.Log, o.Settle) // another process was first; what stays does no harm
	}
	return made, err
}

// format probes the stores, and returns the format of a new log.
func (o *InitOptions) format(ctx context.Context, st store.Store) (f Format, err error) {
	report := o.Probed
	// guard:init-probed. The report of an earlier probe counts only while it is current: it has all
	// promises, this version of the probe made it, and it is less than 30 days old.
	//
	//mutant:replace !report.Current(o.Clock.Wall()) => report == nil
	if !report.Current(o.Clock.Wall()) {
		if report, err = probe.Run(ctx, st, o.Probe); err != nil {
			return Format{}, err
		}
	}
	f = Format{
		Version: document.Format, Log: fence.ID(uuid.New()), Created: o.Clock.Wall().UTC().Truncate(time.Second),
		Limits: o.Limits, Grace: o.Grace, Probe: report,
	}
	if store.IsNil(o.Files) {
		return f, nil
	}
	if err := files.Apart(st, o.Files); err != nil {
		return Format{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if report, err = files.Probe(ctx, o.Files, o.Probe, o.Clock.Wall(), o.Settle); err != nil {
		return Format{}, err
	}
	f.Files = &Files{Store: o.Files.Traits().Name, Probe: report}
	// guard:files-mark-first. Init writes the mark of a store for files before it creates format.json.
	//
	//mutant:replace files.Create(ctx, o.Files, f.Log, st.Traits(), report, o.Settle) => 0, error(nil)
	if _, err := files.Create(ctx, o.Files, f.Log, st.Traits(), report, o.Settle); err != nil {
		return Format{}, err
	}
	return f, nil
}
