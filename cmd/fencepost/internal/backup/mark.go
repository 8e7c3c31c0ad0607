package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// needsBackup is the feature of the format.json of a backup.
const needsBackup = "backup"

// asBackup is the format of a backup of a log. A backup has all files in its own store.
func asBackup(f manifest.Format) manifest.Format {
	f = asLog(f, nil)
	f.Backup, f.Requires = true, append(f.Requires, needsBackup)
	return f
}

// asLog is the format of the log in a backup again, with files in a second store unless that is nil.
func asLog(f manifest.Format, second *manifest.Files) manifest.Format {
	f.Files, f.Backup = second, false
	var rest []string
	for _, name := range f.Requires {
		if !slices.Contains([]string{needsFiles, needsBackup}, name) {
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
		return fmt.Errorf("the backup in %s has a format.json that does not say that it is one: an older version has made it, or it is used as a log; make another backup, in a place of its own", name)
	}
	return nil
}
