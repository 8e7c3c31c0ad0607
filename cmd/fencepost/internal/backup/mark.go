package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// The features of the format.json of a backup, and of a place to which one is being restored.
const (
	needsBackup    = "backup"
	needsRestoring = "restoring"
)

// asBackup is the format of a backup of a log. A backup has all files in its own store.
func asBackup(f manifest.Format) manifest.Format {
	f = asLog(f, nil)
	f.Backup, f.Requires = true, append(f.Requires, needsBackup)
	return f
}

// asLog is the format of the log in a backup again, with files in a second store unless that is nil.
func asLog(f manifest.Format, second *manifest.Files) manifest.Format {
	f.Files, f.Backup, f.Restoring = second, false, nil
	var rest []string
	for _, name := range f.Requires {
		if !slices.Contains([]string{needsFiles, needsBackup, needsRestoring}, name) {
			rest = append(rest, name)
		}
	}
	if second != nil {
		rest = append(rest, needsFiles)
	}
	f.Requires = rest
	return f
}

// claim marks the place as a backup before anything else is written there.
//
// guard:backup-marked. A backup creates the format.json of its place first, and that says what the place is. Without
// this order: a backup has an empty place, and copies; `fencepost init` finds no format.json there, and makes
// a log; its leader appends; the backup's next object comes into the slot that the leader would write
// next; the log is damaged, and nobody can append to it.
//
//mutant:replace asBackup(b.format) => asLog(b.format, nil)
func (b *making) claim(ctx context.Context) error {
	body, err := document.Encode(layout.FormatKey, asBackup(b.format))
	if err != nil {
		return err
	}
	name := b.to.Traits().Name
	if _, there := b.have[layout.FormatKey]; !there {
		if _, err = store.Create(ctx, b.to, layout.FormatKey, body, nil); !errors.Is(err, store.ErrPrecondition) {
			b.marked = err == nil
			b.have[layout.FormatKey] = int64(len(body))
			return err
		}
	}
	switch f, err := manifest.ReadFormat(ctx, b.to, nil); {
	case errors.Is(err, fence.ErrCorrupt) && b.noted != "":
		b.wasDamaged(layout.FormatKey)
		return replace(ctx, b.to, layout.FormatKey, body)
	case err != nil:
		return err
	case f.Log != b.format.Log:
		return fmt.Errorf("%s has log %v, and this is log %v: give a place of its own", name, f.Log, b.format.Log)
	case !f.Backup && b.noted == "":
		return fmt.Errorf("%s is not empty, and holds no backup: give a place of its own", name)
	case !f.Backup:
		return b.markOlder(ctx, &f, body)
	}
	return nil
}

// markOlder marks a backup of an older version, which has the format.json of the log.
//
// guard:backup-unused. A backup without a mark gets one only if it is as its note says. Without this check: an older version
// made the backup, and somebody used it as a log; the next backup marks it; from then on nobody can append to
// that log, and the records that were appended there are in no log and in no backup.
//
//mutant:replace used != nil => false
func (b *making) markOlder(ctx context.Context, f *manifest.Format, body []byte) error {
	name := b.to.Traits().Name
	_, info, err := store.Read(ctx, b.to, layout.FormatKey, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		return err
	}
	newest := uint64(0)
	for key := range b.have {
		if v, ok := layout.ParseManifestKey(key); ok {
			newest = max(newest, v)
		}
	}
	var used error
	if newest > b.note.Version {
		used = fmt.Errorf("it has version %d, and the backup has %d", newest, b.note.Version)
	} else if b.note.Done {
		m, _, err := state.With(b.to, *f, nil).At(ctx, b.note.Version)
		if err == nil {
			err = b.note.Chain.endOf(ctx, b.to, f, m, "they are copied again")
		}
		if !errors.Is(err, fence.ErrCorrupt) { // what is damaged or lost is copied again
			used = err
		}
	}
	if used != nil {
		return fmt.Errorf("the backup in %s is used as a log: %w; make another backup, in a place of its own", name, used)
	}
	if _, err = store.Swap(ctx, b.to, layout.FormatKey, body, info.Version, nil); err != nil {
		return fmt.Errorf("marking the backup in %s: %w", name, err)
	}
	b.have[layout.FormatKey] = int64(len(body))
	b.Note("marked what an older version has made as a backup: nobody else can write there now")
	return nil
}

// take makes the place that of this restore, before anything else is written there. The mark is the format.json, which makes
// the place a log at the very end: [transfer.makeLog] swaps exactly this mark. So of all writers, restores and programs that
// make logs there only one gets the place. A restore that was interrupted has left its mark, and a later call takes it over.
//
// guard:restore-first. A restore creates format.json before it copies, with a mark that all programs refuse. Without this
// order: a restore probes an empty place; a supervised writer of this URL makes a log there, and its record is
// acknowledged; the restore copies its slots among those of this log; nobody can read the record, or append.
//
//mutant:replace asRestoring(f, mark) => asLog(f, nil)
func (t *transfer) take(ctx context.Context, f manifest.Format, n restored) error {
	mark := &manifest.Restoring{Version: n.Version, Run: fence.ID(uuid.New())}
	body, err := document.Encode(layout.FormatKey, asRestoring(f, mark))
	if err != nil {
		return err
	}
	var info store.Info
	if t.mark == "" {
		info, err = store.Create(ctx, t.to, layout.FormatKey, body, nil)
	} else {
		info, err = store.Swap(ctx, t.to, layout.FormatKey, body, t.mark, nil)
	}
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%s: %w", standing(ctx, t.to, ""), err)
	}
	t.mark, t.run = info.Version, mark.Run
	return err
}

// begunBefore returns the mark of a restore that has begun in a place, nil if there is none, and the version of its object. The mark of
// another version or log is an error.
func begunBefore(ctx context.Context, to store.Store, n restored) (*manifest.Restoring, store.Version, error) {
	_, info, err := store.Read(ctx, to, layout.FormatKey, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		return nil, "", err
	}
	f, err := manifest.ReadFormat(ctx, to, nil) // if it is a later one, its swap fails
	if !errors.Is(err, manifest.ErrRestoring) {
		return nil, "", err
	}
	if f.Log != n.Log || f.Restoring.Version != n.Version {
		return nil, "", fmt.Errorf("a restore of version %d of log %v to %s has begun and has not ended, and this is version %d of log %v; nothing was copied; restore to an empty place",
			f.Restoring.Version, f.Log, to.Traits().Name, n.Version, n.Log)
	}
	return f.Restoring, info.Version, nil
}

// asRestoring is the format of a place to which a backup is being restored.
func asRestoring(f manifest.Format, mark *manifest.Restoring) manifest.Format {
	f = asLog(f, nil)
	f.Restoring, f.Requires, f.Probe = mark, append(f.Requires, needsRestoring), nil
	return f
}

// stillMine refuses to go on with a restore to a place that is not that of this restore any more.
func (t *transfer) stillMine(ctx context.Context) error {
	f, err := manifest.ReadFormat(ctx, t.to, nil)
	if errors.Is(err, manifest.ErrRestoring) && f.Restoring.Run == t.run {
		return nil
	}
	if err == nil || errors.Is(err, manifest.ErrRestoring) || errors.Is(err, manifest.ErrNotInitialized) {
		return errors.New(standing(ctx, t.to, ""))
	}
	return err
}
