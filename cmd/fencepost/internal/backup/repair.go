package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
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
	own, files := map[string]other{}, map[string]other{}
	for _, p := range r.Problems {
		known[p.Key] = true
		size, has := there[p.Key]
		name := inspect.Parse(p.Key)
		if p.Repair != "" || !has || !inBackups(name) || name.Kind == inspect.Lock || name.Kind == inspect.CompactorLock {
			continue
		}
		st, key := target.at(p.Key)
		err := store.Retry(ctx, nil, func(ctx context.Context) error {
			obj, err := st.Get(ctx, key, nil)
			if err == nil {
				was[p.Key] = obj.Version
				_ = obj.Body.Close()
			}
			return err
		})
		if errors.Is(err, store.ErrNotFound) {
			was[p.Key] = ""
		} else if err != nil {
			return err
		}
		into := own
		if st != to {
			into = files
		}
		into[key] = other{from, p.Key, store.Info{Key: key, Version: "of the backup", Size: size}}
	}
	if len(was) == 0 {
		return nil
	}
	look := *o
	look.Repair, look.DryRun = false, false
	if len(files) > 0 {
		look.Files = &shown{Store: o.Files, instead: files}
	}
	then, err := verify.Run(ctx, &shown{Store: to, instead: own}, &look)
	if err != nil {
		return err
	}
	for _, p := range then.Problems {
		if !known[p.Key] {
			return fmt.Errorf("%w: with the objects of the backup in %s, %v: it is of another history of this log, or more is damaged; nothing was copied", fence.ErrCorrupt, from.Traits().Name, p)
		}
		delete(was, p.Key) // the backup's object is no better
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
