package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
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

// copyFormat makes the backup a log, with its files in its own store.
func (b *making) copyFormat(ctx context.Context) error {
	if _, there := b.present(layout.FormatKey); there || b.format.Files == nil {
		return b.all(ctx, []item{{layout.FormatKey, -1}})
	}
	f := b.format
	f.Files, f.Requires = nil, without(f.Requires, needsFiles)
	return b.createFormat(ctx, &f)
}

func without(all []string, name string) (rest []string) {
	for _, s := range all {
		if s != name {
			rest = append(rest, s)
		}
	}
	return rest
}

// createFormat writes a format.json that is not that of the other place.
func (t *transfer) createFormat(ctx context.Context, f *manifest.Format) error {
	body, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		return err
	}
	if _, err := store.Create(ctx, t.to, layout.FormatKey, body, nil); err != nil {
		return fmt.Errorf("creating %s: %w", layout.FormatKey, err)
	}
	t.count(layout.FormatKey, int64(len(body)), false)
	return nil
}

// filesIn finds the way of the files from a backup to a second store, if the log had one.
func (t *transfer) filesIn(n note, second store.Store) error {
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

// haveFiles adds the files that the second store has already to what is there. Log says that
// there is a log at the destination.
func (t *transfer) haveFiles(ctx context.Context, log bool) error {
	if t.files.to == nil {
		return nil
	}
	for key := range t.have {
		if strings.HasPrefix(key, layout.FilePrefix) && !log {
			return fmt.Errorf("%s is not empty: it has %s, and the files of the restored log go to %s; nothing was copied; restore to an empty place", t.to.Traits().Name, key, t.files.to.Traits().Name)
		}
	}
	have, err := existing(ctx, t.files.to, t.files.toDir)
	for name, size := range have {
		t.have[layout.FilePrefix+strings.TrimPrefix(name, t.files.toDir)] = size
	}
	return err
}

// claim marks the second store as that of the restored log, before the first copy, and completes
// the log's format. The mark keeps others from restoring the same log to another place with the
// same store for files.
func (t *transfer) claim(ctx context.Context, f *manifest.Format, o *Options) error {
	if t.files.to == nil {
		return nil
	}
	second, home := t.files.to, t.to.Traits().Name
	m, _, err := files.Read(ctx, second, f.Log, nil)
	switch {
	case err == nil && m.Home != home:
		return fmt.Errorf("%w: the store for files, %s, has those of the same log in %s; nothing was copied; give another store with --files. If nothing is left of that log, delete %s/%s there, and restore again",
			manifest.ErrFiles, second.Traits().Name, m.Home, layout.SharedDir, layout.MarkKey(f.Log))
	case errors.Is(err, store.ErrNotFound):
		// As for a new log: a store that breaks the promises would lose what the log commits.
		if m.Probe, err = files.Probe(ctx, second, o.Probe, time.Now(), nil); err == nil {
			err = files.Write(ctx, second, f.Log, home, m.Probe, nil)
		}
	}
	if err != nil {
		return err
	}
	f.Requires = append(without(f.Requires, needsFiles), needsFiles)
	f.Files = &manifest.Files{Store: second.Traits().Name, Probe: m.Probe}
	return nil
}

// restoreFormat makes the destination a log.
func (t *transfer) restoreFormat(ctx context.Context, f *manifest.Format) error {
	if f.Files == nil {
		return t.all(ctx, []item{{layout.FormatKey, -1}})
	}
	// Another restore may have begun at the same moment, and replaced the mark.
	if err := fits(ctx, t.to, f, t.files.to); err != nil {
		return err
	}
	return t.createFormat(ctx, f)
}

// fits returns manifest.ErrFiles if the store for files is not that of the log in to.
func fits(ctx context.Context, to store.Store, f *manifest.Format, second store.Store) error {
	_, err := state.With(to, *f, &state.Options{Files: second}).CheckFiles(ctx, true)
	return err
}
