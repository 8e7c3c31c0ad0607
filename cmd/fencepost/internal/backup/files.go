package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// A log may keep the files of its table in a second store. Its backup has them in itself, under
// their keys in the log, and its format.json says so: a backup is one place, which can be
// verified, moved and deleted as a whole. A restore puts them into a second store again.

// needsFiles is the feature of format.json, and of the note, for files in a second store.
const needsFiles = "files"

// folder is where the files of a log are in a second store.
func folder(log fence.ID) string { return layout.FilesDir(log) + "/" }

// filesOut is the way of the files from a second store to the backup.
func filesOut(f *manifest.Format, second, to store.Store) (way, error) {
	if err := apart(second, to); err != nil {
		return way{}, err
	}
	return way{
		from: second, fromDir: folder(f.Log), sample: layout.SharedDir + "/" + layout.MarkKey(f.Log),
		to: to, toDir: layout.FilePrefix, tmp: layout.TmpPrefix,
	}, nil
}

// apart refuses to have a backup and a store for files within one another: whoever cleans up the
// table, such as an engine that vacuums it, would delete the backup.
func apart(second, backup store.Store) error {
	if files.Apart(backup, second) == nil {
		return nil
	}
	return fmt.Errorf("the backup in %s and the store for files, %s, lie one within the other: who cleans up the table would delete the backup. Give each a prefix of its own", backup.Traits().Name, second.Traits().Name)
}

// filesIn finds the way of the files from a backup to a second store, if the log had one.
func (t *transfer) filesIn(n restored, second store.Store) error {
	switch {
	case n.Files == "" && second != nil:
		return fmt.Errorf("%w: the log in the backup keeps its files in its own store; leave out --files", manifest.ErrFiles)
	case n.Files == "":
		return nil
	case second == nil:
		return fmt.Errorf("%w: the log in the backup kept the files of its table in another store, %s; say with --files URL where they go. Other logs may use that store, but not the one from which the backup was made",
			manifest.ErrFiles, n.Files)
	}
	if err := apart(second, t.from); err != nil {
		return err
	}
	if err := files.Apart(t.to, second); err != nil {
		return fmt.Errorf("%w: %w", manifest.ErrFiles, err)
	}
	t.report.Files = second.Traits().Name
	t.files = way{
		from: t.from, fromDir: layout.FilePrefix, sample: layout.FormatKey,
		to: second, toDir: folder(n.Log), tmp: layout.SharedDir + "/" + layout.TmpPrefix,
	}
	return nil
}

// ownFiles refuses to restore a log with a second store for its files to a place that has files.
func (t *transfer) ownFiles() error {
	if t.files.to == nil {
		return nil
	}
	for key := range t.have {
		if strings.HasPrefix(key, layout.FilePrefix) {
			return fmt.Errorf("%s is not empty: it has %s, and the files of the restored log go to %s; nothing was copied; restore to an empty place", t.to.Traits().Name, key, t.files.to.Traits().Name)
		}
	}
	return nil
}

// haveFiles adds the files that the second store has already to what is there.
func (t *transfer) haveFiles(ctx context.Context) error {
	if t.files.to == nil {
		return nil
	}
	have, err := existing(ctx, t.files.to, t.files.toDir)
	for name, size := range have {
		t.have[layout.FilePrefix+strings.TrimPrefix(name, t.files.toDir)] = size
	}
	return err
}

// freeFiles refuses a second store that has the mark of the same log in another place, before this restore has written
// anything. Claim does it again.
func (t *transfer) freeFiles(ctx context.Context, log fence.ID) error {
	if t.files.to == nil {
		return nil
	}
	m, _, err := files.Read(ctx, t.files.to, log, nil)
	if err == nil && !m.Of(t.to.Traits()) {
		err = taken(t.files.to, log, cmp.Or(m.Where, m.Home))
	}
	return ignore(err, store.ErrNotFound)
}

// claim marks the second store as that of the restored log, before the first copy, and completes
// the log's format. It only creates the mark and never replaces one. So of all restores of one backup
// with one store for files, those to one place go on, and all others are refused, no matter how long
// any of them sleeps. A restore that is refused later leaves its mark: a delete could come late and
// hit the mark of another restore. The same restore goes on with it.
func (t *transfer) claim(ctx context.Context, f *manifest.Format, source map[string]int64, o *Options) error {
	if t.files.to == nil {
		return nil
	}
	second, home := t.files.to, t.to.Traits()
	m, _, err := files.Read(ctx, second, f.Log, nil)
	if errors.Is(err, store.ErrNotFound) {
		// As for a new log: a store that breaks the promises would lose what the log commits.
		var report *probe.Report
		if report, err = files.Probe(ctx, second, o.Probe, time.Now(), nil); err == nil {
			m, err = files.Create(ctx, second, f.Log, home, report, nil)
		}
	}
	if err != nil {
		return err
	}
	if !m.Of(home) {
		return taken(second, f.Log, cmp.Or(m.Where, m.Home))
	}
	*f = asLog(*f, &manifest.Files{Store: second.Traits().Name, Probe: m.Probe})
	// Again, now that no other restore can begin: since the first listing another one may have
	// come and gone. Its files are not this log's.
	maps.DeleteFunc(t.have, func(key string, _ int64) bool { return strings.HasPrefix(key, layout.FilePrefix) })
	if err := t.haveFiles(ctx); err != nil {
		return err
	}
	if err := t.fits(source); err != nil {
		return fmt.Errorf("%w. The mark %s/%s is left in %s: restore to %s again when that is empty, or give another store with --files", err, layout.SharedDir, layout.MarkKey(f.Log), second.Traits().Name, home.Where())
	}
	return nil
}

// taken says that a store for files has the mark of the same log in another place.
func taken(second store.Store, log fence.ID, home string) error {
	return fmt.Errorf("%w: the store for files, %s, has those of the same log in %s, or a restore to there has begun; nothing was copied. Give another store, or another prefix, with --files. Or restore to %s, if that restore was interrupted. If there is neither a log nor a restore that may still run, delete %s/%s in the store for files, and restore again",
		manifest.ErrFiles, second.Traits().Name, home, home, layout.SharedDir, layout.MarkKey(log))
}

// restoreFormat makes the destination a log.
func (t *transfer) restoreFormat(ctx context.Context, f *manifest.Format) error {
	if f.Files == nil {
		return t.makeLog(ctx, f)
	}
	// guard:restore-mark-last. A restore reads the mark of its log again after the last copy, and before
	// it creates format.json. Without this check: a restore to A hangs; the operator takes it for dead,
	// deletes its mark, and restores to B with the same store for files; log B lives; the restore to A
	// wakes and creates format.json; both logs have leaders of the same epochs; the compactor of B takes
	// committed files of A for orphans, and deletes them.
	//
	//mutant:replace err != nil => err != nil && false
	if err := t.markStays(ctx, f); err != nil {
		return err
	}
	return t.makeLog(ctx, f)
}

// makeLog makes the place of a restore a log, unless it is not that of this restore any more.
//
// guard:restore-swap. A restore makes its place a log by a swap of its own mark. Without this condition: a restore
// hangs; an operator runs it again, the log lives, is deleted, and another backup is being restored to there; the first
// one wakes, and its format.json makes half a log of it.
//
//mutant:replace _, err = store.Swap(ctx, t.to, layout.FormatKey, body, t.mark, nil) => err = replace(ctx, t.to, layout.FormatKey, body)
func (t *transfer) makeLog(ctx context.Context, f *manifest.Format) error {
	body, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		return err
	}
	_, err = store.Swap(ctx, t.to, layout.FormatKey, body, t.mark, nil)
	if errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("%s: %w", standing(ctx, t.to, ""), err)
	}
	if err != nil {
		return fmt.Errorf("making %s a log: %w", t.to.Traits().Name, err)
	}
	t.count(layout.FormatKey, int64(len(body)), false)
	return nil
}

// markStays is marked, and compares the server too.
func (t *transfer) markStays(ctx context.Context, f *manifest.Format) error {
	if err := marked(ctx, t.to, f, t.files.to); err != nil {
		return err
	}
	m, _, err := files.Read(ctx, t.files.to, f.Log, nil)
	if err == nil && !m.Of(t.to.Traits()) {
		err = fmt.Errorf("%w: the store for files, %s, was given to the same log in %s meanwhile. %s", manifest.ErrFiles, t.files.to.Traits().Name, m.Where, standing(ctx, t.to, ", and can be deleted unless another restore to there still runs"))
	}
	return err
}

// marked returns manifest.ErrFiles if the store for files is not that of the log in to.
func marked(ctx context.Context, to store.Store, f *manifest.Format, second store.Store) error {
	_, err := state.With(to, *f, &state.Options{Files: second}).CheckFiles(ctx, true)
	return err
}
