package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Run checks the log in st. Damage is in the report; the error is for what kept
// Run from looking: manifest.ErrNotInitialized if there is no log, fence.ErrFormat
// if it was written by a newer version, the store's or ctx's. The report is never
// nil; after an error it tells how far Run came.
func Run(ctx context.Context, st store.Store, opts *Options) (*Report, error) {
	o := opts.withDefaults()
	v := &verifier{
		st: st, opts: o, sealed: map[fence.Epoch]uint64{}, read: map[string]bool{},
		report: &Report{Store: st.Traits().Name, Problems: []Finding{}, Notes: []Finding{}},
	}
	begun := o.Clock.Now()
	err := v.run(ctx)
	v.report.Took = o.Clock.Now().Sub(begun)
	if err != nil {
		err = fmt.Errorf("verify: %w", err)
	}
	return v.report, err
}

type verifier struct {
	st     store.Store
	opts   Options
	log    *state.Log
	chain  chain.Source
	segs   segment.Source
	report *Report

	m *state.Manifest // the newest, when it was last asked for
	// next is the offset up to which all records have been checked.
	next uint64
	done int64 // bytes
	// read are the segments that have been read.
	read map[string]bool
	// table is the newest manifest with the edits on the chain so far; nil if it is not
	// known.
	table *state.Manifest
	// sealed are the seals on the chain from the floor on, by epoch.
	sealed map[fence.Epoch]uint64
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
		if err := v.records(ctx); err != nil {
			return err
		}
		for _, check := range []func(context.Context) error{v.files, v.pins, v.seals} {
			if err := check(ctx); err != nil {
				return err
			}
		}
		if err := v.manifests(ctx); err != nil {
			return err
		}
		v.report.Manifest, v.report.First, v.report.Floor = v.m.Version, v.m.First(), v.m.Floor.Position
		if v.m.Version == 0 {
			// Nobody has led this log yet.
			v.report.First = 0
		}
	}
	if err := v.locks(ctx); err != nil {
		return err
	}
	if err := v.rules(ctx); err != nil {
		return err
	}
	return v.objects(ctx, known)
}

// format reads format.json. It is false if nothing else can be judged.
func (v *verifier) format(ctx context.Context) (bool, error) {
	f, err := manifest.ReadFormat(ctx, v.st, v.opts.Settle)
	switch {
	case errors.Is(err, manifest.ErrNotInitialized):
		orphaned := ""
		for _, prefix := range []string{layout.ManifestPrefix, layout.DataPrefix} {
			for info, lerr := range store.ListAll(ctx, v.st, prefix, nil, v.opts.Settle) {
				if lerr != nil {
					return false, lerr
				}
				orphaned = info.Key
				break
			}
		}
		if orphaned == "" {
			return false, err
		}
		v.problem(layout.FormatKey, restore, "it is missing, but there is a log: %s; without it nobody can read or write the log", orphaned)
		return false, nil
	case errors.Is(err, fence.ErrCorrupt):
		v.problem(layout.FormatKey, restore, "%s; without it nobody can read or write the log", about(layout.FormatKey, err))
		return false, nil
	case err != nil:
		return false, err
	}
	v.report.Log = f.Log
	v.log = state.With(v.st, f, &state.Options{Settle: v.opts.Settle, Clock: v.opts.Clock})
	v.chain = chain.Source{Store: v.st, Log: f.Log, Limits: f.Limits.Limits, Settle: v.opts.Settle}
	v.segs = segment.Source{Store: v.st, Log: f.Log, Limits: f.Limits.Limits, Settle: v.opts.Settle}
	return true, nil
}

// newest reads the newest manifest. It is false if that is damaged; then the
// rest of the log cannot be judged.
func (v *verifier) newest(ctx context.Context) (bool, error) {
	m, err := v.log.Newest(ctx)
	if errors.Is(err, fence.ErrCorrupt) {
		key, kerr := v.highest(ctx)
		if kerr != nil {
			return false, kerr
		}
		v.problem(key, restore+"; "+keep, "the newest manifest is damaged: %s; nobody can open the log, and what it refers to cannot be judged", about(key, err))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	v.m = m
	return true, nil
}

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

// errOvertaken: the newest manifest does not need the object any more.
var errOvertaken = errors.New("verify: overtaken by the newest manifest")

// refresh reads the newest manifest in the middle of the work. That it is
// damaged is noted by then.
func (v *verifier) refresh(ctx context.Context) error {
	known, err := v.newest(ctx)
	if err == nil && !known {
		err = errNoManifest
	}
	return err
}

var errNoManifest = errors.New("verify: the newest manifest is damaged")

// records checks all records, in the segments and on the chain. Each time that
// the floor overtakes it, it goes on in the segments at the same offset.
func (v *verifier) records(ctx context.Context) error {
	for {
		err := v.segments(ctx)
		if err == nil {
			err = v.walk(ctx)
		}
		switch {
		case errors.Is(err, errNoManifest):
			return nil
		case !errors.Is(err, errOvertaken):
			return err
		}
	}
}

// damage tells errors that are about an object from those that are about the
// store.
func damage(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrLimit) || errors.Is(err, store.ErrNotFound) ||
		errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrRange)
}
