package backup

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// Repair copies to a log what a backup still has of the objects that a report calls damaged or missing, and says so in the
// report. With o.DryRun it only says what it would do. The options are those of the run that gave the report.
//
// It first verifies the log as it would be, with the backup's objects in their places. It copies those with which nothing is
// wrong any more. If something else is wrong then, the backup is of another history, and it copies nothing. An object that
// is sound is never replaced: each is created if it is absent, or swapped for the damaged one.
func Repair(ctx context.Context, from, to store.Store, r *verify.Report, o *verify.Options) error {
	n, err := readNote(ctx, from)
	if err != nil {
		return err
	}
	f, err := manifest.ReadFormat(ctx, to, nil)
	if err != nil {
		return err
	}
	if n.Log != f.Log {
		return fmt.Errorf("the backup in %s is of log %v, and this is log %v", from.Traits().Name, n.Log, f.Log)
	}
	target := side{log: to}.with(o.Files, f)
	there, err := side{log: from}.list(ctx, "")
	if err != nil {
		return err
	}
	known, was := map[string]bool{}, map[string]store.Version{}
	own, files, content := map[string]other{}, map[string]other{}, false
	for _, p := range r.Problems {
		known[p.Key] = true
		size, has := there[p.Key]
		name := inspect.Parse(p.Key)
		if p.Repair != "" || !has || !inBackups(name) || name.Kind == inspect.Lock || name.Kind == inspect.CompactorLock {
			continue
		}
		st, key := target.at(p.Key)
		now, err := version(ctx, st, key)
		if ignore(err, store.ErrNotFound) != nil {
			return err
		}
		copied, err := version(ctx, from, p.Key)
		if err != nil {
			return err
		}
		was[p.Key] = now
		into := own
		if st != to {
			into = files
		}
		into[key] = other{from, p.Key, store.Info{Key: key, Version: copied, Size: size}}
		content = content || name.Kind == inspect.File
	}
	if len(was) == 0 {
		return nil
	}
	// All of it, and each finding: what is not read may be damaged in the backup too.
	look := verify.Options{Copy: o.Copy, NoContent: o.NoContent && !content, Files: o.Files, MaxFindings: manyFindings, Settle: o.Settle, Clock: o.Clock}
	look.Hooks.Progress = o.Hooks.Progress
	if len(files) > 0 {
		look.Files = &shown{Store: o.Files, instead: files}
	}
	repaired := &shown{Store: to, instead: own}
	then, err := verify.Run(ctx, repaired, &look)
	if err != nil {
		return err
	}
	for _, p := range then.Problems {
		if !known[p.Key] {
			return fmt.Errorf("%w: with the objects of the backup in %s, %v: it is of another history of this log, or more is damaged; nothing was copied", fence.ErrCorrupt, from.Traits().Name, p)
		}
		delete(was, p.Key) // the backup's object is no better
	}
	if err := sameHistory(ctx, n, repaired, look.Files); err != nil {
		return err
	}
	t := &transfer{from: side{log: from}, to: target}
	for i := range r.Problems {
		p := &r.Problems[i]
		version, ok := was[p.Key]
		if !ok || p.Repaired {
			continue
		}
		if p.Repair = "copy it from " + from.Traits().Name; o.DryRun {
			p.Remedy = "`fencepost verify --repair --from` can " + p.Repair
			continue
		}
		if err := t.mend(ctx, p.Key, version, there[p.Key]); err != nil {
			return fmt.Errorf("copying %s: %w", p.Key, err)
		}
		p.Repaired = true
	}
	return nil
}

// version returns the version of an object.
func version(ctx context.Context, st store.Store, key string) (v store.Version, err error) {
	err = store.Retry(ctx, nil, func(ctx context.Context) error {
		obj, err := st.Get(ctx, key, nil)
		if err == nil {
			v = obj.Version
			_ = obj.Body.Close()
		}
		return err
	})
	return v, err
}

// sameHistory refuses a backup whose end is not on the chain of the log, as that would be with the backup's objects.
//
// guard:repair-history. A repair copies nothing from a backup if the log, once it is whole, has not the place where the backup ends.
//
//mutant:replace err != nil || has => err != nil || has || true
func sameHistory(ctx context.Context, n restored, log, files store.Store) error {
	r, err := reader.Open(ctx, log, &reader.Options{Files: files})
	if err != nil {
		return err
	}
	table := r.Table()
	if _, err := table.Read(ctx); err != nil {
		return ignore(err, fence.ErrCorrupt) // more is damaged, so nobody can tell; what is copied fits what is left
	}
	if has, err := table.Contains(ctx, reader.Place{Slot: n.Chain.Slot, Opened: n.Opened}); err != nil || has {
		return err
	}
	return fmt.Errorf("%w: the log does not reach slot %v, where the backup ends: the backup is of another history of this log, or the end of the log is lost; nothing was copied; restore the backup to another place to compare", fence.ErrCorrupt, n.Chain.Slot)
}

// mend copies an object to where it is absent, or where this version of it is damaged.
func (t *transfer) mend(ctx context.Context, key string, damaged store.Version, size int64) error {
	to, name := t.to.at(key)
	if kind := inspect.Parse(key).Kind; size > small && (kind == inspect.Segment || kind == inspect.File) {
		_, err := t.stream(ctx, key, damaged != "") // whoever else writes this name writes the same bytes
		return err
	}
	body, _, err := store.Read(ctx, t.from.log, key, &store.ReadOptions{Limit: max(size, 1)})
	switch {
	case err != nil:
	case damaged == "":
		_, err = store.Create(ctx, to, name, body, nil)
	default:
		_, err = store.Swap(ctx, to, name, body, damaged, nil)
	}
	return err
}
