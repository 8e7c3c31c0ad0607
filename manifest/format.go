package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// maxFormat bounds format.json, in bytes.
const maxFormat = 1 << 20

// Format is the content of format.json: what every process reads before anything else
// of the log.
type Format struct {
	// Version of the layout. A program refuses a log with a version that it does not know.
	Version int
	// Requires names features that a program must know to use the log. [ReadFormat] sets it; an encoded format
	// names what its other members need.
	Requires []string
	// Log is the identity of the log. It stands in every object.
	Log     fence.ID
	Created time.Time
	Limits  fence.Limits
	// Grace is how long objects are kept after the newest manifest no longer needs them:
	// for readers that still use an older manifest, and for listings that are in flight.
	// Readers read the newest manifest at least twice in that time.
	Grace time.Duration
	// Files says that the files of the log's table are in a second store; nil if they are in
	// the log's own.
	Files *Files
	// Backup says that this is a backup of the log: programs may read it, and only a backup of the
	// same log writes there. Who would write gets [ErrBackup].
	Backup bool
	// Restoring says that a restore of a backup to this place has begun and has not ended; nil if
	// not. Then [ReadFormat] returns [ErrRestoring].
	Restoring *Restoring
	// Restored is the version of the manifest with which a restore began this log: older versions are in its
	// original only. It is 0 in a log that was not restored.
	Restored uint64
	// Probe is what the probe of the store has found.
	Probe *probe.Report
}

// formatDoc is a Format as format.json has it.
type formatDoc struct {
	Version  int               `json:"format"`
	Requires []string          `json:"requires,omitempty"`
	Log      fence.ID          `json:"log"`
	Created  time.Time         `json:"created"`
	Limits   fence.Limits      `json:"limits"`
	Grace    document.Duration `json:"grace"`
	Files    *Files            `json:"files,omitempty"`
	Backup   bool              `json:"backup,omitempty"`
	Restore  *Restoring        `json:"restoring,omitempty"`
	Restored uint64            `json:"restored,omitempty"`
	Probe    *probe.Report     `json:"probe,omitempty"`
}

// Restoring is a restore that has begun.
type Restoring struct {
	// Version is that of the manifest that is restored.
	Version uint64 `json:"version"`
	// Run is another one for each call that restores.
	Run fence.ID `json:"run"`
}

// Files is a second store, which has the files of a log's table and may have those of other
// logs.
type Files struct {
	// Store is what the store called itself when the log was created: "s3://bucket/table".
	Store string `json:"store"`
	// Probe is what a probe of that store has found.
	Probe *probe.Report `json:"probe,omitempty"`
}

// The features that a program must know to use a log with [Format.Files], one with [Format.Backup], and a place with
// [Format.Restoring].
const (
	needsFiles     = "files"
	needsBackup    = "backup"
	needsRestoring = "restoring"
)

// FileName returns the name that a file has in the store that holds files. It is the key of
// the file itself, or "<log>/<epoch>/<name>" if that is a second store.
func (f *Format) FileName(key string) string {
	if name, ok := strings.CutPrefix(key, layout.FilePrefix); ok && f.Files != nil {
		return layout.FilesDir(f.Log) + "/" + name
	}
	return key
}

func (f *Format) filesHome() string {
	if f.Files == nil {
		return ""
	}
	return f.Files.Store
}

// ReadFormat reads format.json. Errors: [ErrNotInitialized], [fence.ErrFormat],
// [fence.ErrCorrupt]; [ErrRestoring], together with the format.
func ReadFormat(ctx context.Context, st store.Store, settle *store.SettleOptions) (Format, error) {
	if store.IsNil(st) {
		return Format{}, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	body, _, err := store.Read(ctx, st, layout.FormatKey, &store.ReadOptions{Limit: maxFormat, Settle: settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Format{}, fmt.Errorf("%w: %s has no %s; create a log with `fencepost init` or by opening a writer, or check the URL", ErrNotInitialized, st.Traits().Name, layout.FormatKey)
	case errors.Is(err, store.ErrTooLarge):
		return Format{}, document.Corrupt(layout.FormatKey, "%v", err)
	case err != nil:
		return Format{}, err
	}
	f, err := decodeFormat(body)
	// guard:restore-claimed. A place to which a backup is restored is no log until the restore has
	// ended: whoever opens it is refused, and writes nothing.
	//
	//mutant:replace err == nil && f.Restoring != nil => false
	if err == nil && f.Restoring != nil {
		err = fmt.Errorf("%w: %s", ErrRestoring, st.Traits().Name)
	}
	return f, err
}

// MarshalJSON writes the format as format.json has it.
func (f Format) MarshalJSON() ([]byte, error) {
	return json.Marshal(formatDoc{f.Version, f.needs(), f.Log, f.Created, f.Limits, document.Duration(f.Grace), f.Files, f.Backup, f.Restoring, f.Restored, f.Probe})
}

// needs names the features that a program must know because of what the format has.
func (f *Format) needs() (names []string) {
	for name, has := range map[string]bool{needsFiles: f.Files != nil, needsBackup: f.Backup, needsRestoring: f.Restoring != nil} {
		if has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (f Format) encode() ([]byte, error) { return document.Encode(layout.FormatKey, f) }

func decodeFormat(body []byte) (Format, error) {
	var d formatDoc
	if err := document.Decode(layout.FormatKey, body, &d, needsFiles, needsBackup, needsRestoring); err != nil {
		return Format{}, err
	}
	f := Format{d.Version, d.Requires, d.Log, d.Created, d.Limits, time.Duration(d.Grace), d.Files, d.Backup, d.Restore, d.Restored, d.Probe}
	if f.Log == (fence.ID{}) {
		return Format{}, document.Corrupt(layout.FormatKey, "the log has no id")
	}
	if err := layout.CheckLimits(f.Limits); err != nil {
		return Format{}, document.Corrupt(layout.FormatKey, "%v", err)
	}
	if f.Grace < 0 {
		return Format{}, document.Corrupt(layout.FormatKey, "grace is %v", f.Grace)
	}
	if named := slices.Sorted(slices.Values(f.Requires)); !slices.Equal(named, f.needs()) {
		return Format{}, document.Corrupt(layout.FormatKey, "it requires that programs know %q, and its members need %q", named, f.needs())
	}
	if r := f.Restoring; r != nil && (f.Backup || f.Files != nil || r.Version == 0 || r.Run == (fence.ID{})) {
		return Format{}, document.Corrupt(layout.FormatKey, "its member restoring is %+v, with backup: %t, and files: %t", *r, f.Backup, f.Files != nil)
	}
	if f.Backup && f.Files != nil {
		return Format{}, document.Corrupt(layout.FormatKey, "it has the members backup and files: a backup has its files in itself")
	}
	return f, nil
}
