package verify

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Run checks the log in st. Damage is in the report. The error is for what kept Run from
// reading: [ErrOptions]; manifest.ErrNotInitialized if there is no log; manifest.ErrFiles if
// Options.Files is missing, or the log has no second store; fence.ErrFormat if
// a newer version of this project has written it; the store's or ctx's. After an error
// the report tells how far Run came; it is never nil.
func Run(ctx context.Context, st store.Store, opts *Options) (*Report, error) {
	report := &Report{Problems: []Finding{}, Notes: []Finding{}}
	if store.IsNil(st) {
		return report, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	if err := opts.Validate(); err != nil {
		return report, err
	}
	o := opts.withDefaults()
	report.Store, report.Part, report.Parts = st.Traits().Name, o.Part, o.Parts
	v := &verifier{st: st, opts: o, sealed: map[fence.Epoch]uint64{}, read: map[string]bool{}, sound: map[string]bool{}, report: report}
	begun := o.Clock.Now()
	err := v.run(ctx)
	report.Took = o.Clock.Now().Sub(begun)
	if err != nil {
		err = fmt.Errorf("verify: %w", err)
	}
	if o.Hooks.Verified != nil {
		o.Hooks.Verified(Verified{report, err})
	}
	return report, err
}

type verifier struct {
	st     store.Store
	opts   Options
	log    *state.Log
	files  store.Store // has the files
	chain  chain.Source
	segs   segment.Source
	report *Report

	m *state.Manifest // the newest one, when it was last read
	// next is the offset up to which all records have been checked.
	next uint64
	done int64 // bytes
	// read are the keys of the segments that have been read.
	read map[string]bool
	// table is the newest manifest with the edits on the chain so far; nil if it is not
	// known.
	table *state.Manifest
	// sound are the keys of the files whose content has been read and is right.
	sound map[string]bool
	// sizes are those of segments, by key, if they are not read; nil until they are listed.
	sizes map[string]int64
	// sealed are the seals on the chain from the floor on, by epoch.
	sealed map[fence.Epoch]uint64
	// undue are the seals, by key, that this part does not read, and that the listing has not shown yet.
	undue map[string]state.Seal
	// first are the versions that are missing before the oldest one.
	first span
}

func (v *verifier) run(ctx context.Context) error {
	known, err := v.format(ctx)
	if err != nil || !known {
		return err
	}
	known, err = v.newest(ctx)
	if err != nil {
		return err
	}
	if known {
		v.next = v.m.First()
		for _, check := range []func(context.Context) error{v.pages, v.records, v.mark, v.liveFiles, v.pins, v.seals, v.manifests, v.replaced} {
			if err := check(ctx); err != nil && !errors.Is(err, errNoManifest) {
				return err
			}
		}
		v.report.Manifest, v.report.First, v.report.Floor = v.m.Version, v.m.First(), v.m.Floor.Position
		if v.m.Version == 0 {
			v.report.First = 0 // nobody has led this log yet
		}
	}
	if v.older(); v.opts.Outline {
		return v.objects(ctx, known)
	}
	if err := v.locks(ctx); err != nil {
		return err
	}
	if err := v.consumers(ctx); err != nil {
		return err
	}
	if err := v.rules(ctx); err != nil {
		return err
	}
	return v.objects(ctx, known)
}

// format reads format.json. It returns false if nothing else can be checked.
func (v *verifier) format(ctx context.Context) (bool, error) {
	f, err := manifest.ReadFormat(ctx, v.st, v.opts.Settle)
	switch {
	case errors.Is(err, manifest.ErrNotInitialized):
		orphan := ""
		for _, prefix := range []string{layout.ManifestPrefix, layout.DataPrefix} {
			for info, lerr := range store.ListAll(ctx, v.st, prefix, nil, v.opts.Settle) {
				if lerr != nil {
					return false, lerr
				}
				orphan = info.Key
				break
			}
		}
		if orphan == "" {
			return false, err
		}
		v.problem(layout.FormatKey, "if `fencepost restore` was interrupted here, run it again; otherwise "+restore, "it is missing, but there is a log: %s; without it nobody can read or write the log", orphan)
		return false, nil
	case errors.Is(err, fence.ErrCorrupt):
		v.problem(layout.FormatKey, restore, "%s; without it nobody can read or write the log", about(layout.FormatKey, err))
		return false, nil
	case err != nil:
		return false, err
	}
	if f.Backup && v.opts.Repair && !v.opts.DryRun {
		return false, fmt.Errorf("%w: %s. To repair it, run `fencepost backup` again: that copies what is damaged", manifest.ErrBackup, v.st.Traits().Name)
	}
	v.opts.Copy = v.opts.Copy || f.Backup
	v.report.Log = f.Log
	v.log = state.With(v.st, f, &state.Options{Files: v.opts.Files, Settle: v.opts.Settle, Clock: v.opts.Clock})
	v.chain = chain.Source{Store: v.st, Log: f.Log, Limits: f.Limits, Settle: v.opts.Settle}
	v.segs = segment.Source{Store: v.st, Log: f.Log, Limits: f.Limits, Settle: v.opts.Settle}
	if v.files, err = v.log.FileStore(); v.opts.Outline && errors.Is(err, manifest.ErrFiles) {
		v.files, err = nil, nil
	}
	return true, err
}

// newest reads the newest manifest. It returns false if that is damaged: then the rest
// of the log cannot be checked.
func (v *verifier) newest(ctx context.Context) (bool, error) {
	m, err := v.log.Newest(ctx)
	if errors.Is(err, fence.ErrCorrupt) {
		key, kerr := v.highest(ctx)
		if kerr != nil {
			return false, kerr
		}
		v.problem(key, restore+"; "+keep, "the newest manifest is damaged: %s; nobody can open the log, and what it refers to cannot be checked", about(key, err))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v.m = m
	return true, nil
}

// highest is the key of the newest manifest.
func (v *verifier) highest(ctx context.Context) (key string, err error) {
	kept, err := v.log.Versions(ctx)
	if err != nil {
		return "", err
	}
	var high uint64
	for n, k := range kept {
		if key == "" || n > high {
			key, high = k.Key, n
		}
	}
	return key, nil
}

// refresh reads the newest manifest again, in the middle of the work.
func (v *verifier) refresh(ctx context.Context) error {
	known, err := v.newest(ctx)
	if err == nil && !known {
		err = errNoManifest
	}
	return err
}

// records checks all records, in the segments and on the chain. Each time that the floor
// passes its position, it goes on in the segments at the same offset.
func (v *verifier) records(ctx context.Context) error {
	for {
		err := v.segments(ctx)
		if err == nil {
			err = v.walk(ctx)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

// atOnce is how many small objects are read at the same time.
const atOnce = 16

// each reads n small objects and returns the errors of those that are unreadable. Done
// is called with how many have been read.
func each(ctx context.Context, n int, read func(context.Context, int) error, done func(int)) ([]error, error) {
	errs := make([]error, n)
	over := make(chan struct{}, n)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	go func() {
		for i := range n {
			g.Go(func() error {
				defer func() { over <- struct{}{} }()
				err := read(gctx, i)
				if err != nil && !unreadable(err) {
					return err
				}
				errs[i] = err
				return nil
			})
		}
	}()
	for i := range n {
		<-over
		done(i + 1)
	}
	return errs, g.Wait()
}
