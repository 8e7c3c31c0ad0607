package manifest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// maxFormat bounds format.json, in bytes.
const maxFormat = 1 << 20

// Format is the content of format.json: what every process reads before anything else
// of the log.
type Format struct {
	// Version of the layout. A program refuses a log with a version that it does not know.
	Version int `json:"format"`
	// Requires names features that a program must know to use the log.
	Requires []string `json:"requires,omitempty"`
	// Log is the identity of the log. It stands in every object.
	Log     fence.ID  `json:"log"`
	Created time.Time `json:"created"`
	Limits  Limits    `json:"limits"`
	// Grace is how long objects are kept after the newest manifest no longer needs them:
	// for readers that still use an older manifest, and for listings that are in flight.
	// Readers read the newest manifest at least twice in that time.
	Grace Duration `json:"grace"`
	// Files says that the files of the log's table are in a second store; nil if they are in
	// the log's own.
	Files *Files `json:"files,omitempty"`
	// Probe is what the probe of the store has found.
	Probe *probe.Report `json:"probe,omitempty"`
}

// Files is a second store, which has the files of a log's table and may have those of other
// logs.
type Files struct {
	// Store is what the store called itself when the log was created: "s3://bucket/table".
	Store string `json:"store"`
	// Probe is what a probe of that store has found.
	Probe *probe.Report `json:"probe,omitempty"`
}

// needsFiles is the feature that a program must know to use a log with [Format.Files].
const needsFiles = "files"

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
// [fence.ErrCorrupt].
func ReadFormat(ctx context.Context, st store.Store, settle *store.SettleOptions) (Format, error) {
	if store.IsNil(st) {
		return Format{}, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	body, _, err := store.ReadAll(ctx, st, layout.FormatKey, maxFormat, settle)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Format{}, fmt.Errorf("%w: %s has no %s; create a log with `fencepost init` or by opening a writer, or check the URL", ErrNotInitialized, st.Traits().Name, layout.FormatKey)
	case errors.Is(err, store.ErrTooLarge):
		return Format{}, document.Corrupt(layout.FormatKey, "%v", err)
	case err != nil:
		return Format{}, err
	}
	return decodeFormat(body)
}

func (f *Format) encode() ([]byte, error) { return document.Encode(layout.FormatKey, f) }

func decodeFormat(body []byte) (Format, error) {
	var f Format
	if err := document.Decode(layout.FormatKey, body, &f, needsFiles); err != nil {
		return Format{}, err
	}
	if f.Log == (fence.ID{}) {
		return Format{}, document.Corrupt(layout.FormatKey, "the log has no id")
	}
	if err := f.Limits.Validate(); err != nil {
		return Format{}, document.Corrupt(layout.FormatKey, "%v", err)
	}
	if f.Grace < 0 {
		return Format{}, document.Corrupt(layout.FormatKey, "grace is %v", time.Duration(f.Grace))
	}
	if named := slices.Contains(f.Requires, needsFiles); named != (f.Files != nil) {
		return Format{}, document.Corrupt(layout.FormatKey, "it has the member files: %t, and requires that programs know it: %t", f.Files != nil, named)
	}
	return f, nil
}

// Duration is a time.Duration that JSON shows as "10m0s".
type Duration time.Duration

// MarshalText writes the duration as time.Duration does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration does.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MaxManifest is the greatest limit of a manifest, in bytes.
const MaxManifest = 64 << 20

// leastRoom is how many bytes a manifest has at least beside its cursors. Each of five
// lists may take an eighth of them, and so may the properties; the rest is for the names
// of pages.
const leastRoom = 256 << 10

// Limits of a log, in bytes.
type Limits struct {
	fence.Limits
	// Manifest bounds a manifest: at most [MaxManifest], and at least 256 KiB and two
	// cursors in base64.
	Manifest int `json:"manifest"`
}

// DefaultLimits are those of package fence, and 8 MiB a manifest.
func DefaultLimits() Limits { return Limits{Limits: fence.DefaultLimits(), Manifest: 8 << 20} }

// Validate returns an error that is [fence.ErrLimit] if no log can have these limits.
func (l Limits) Validate() error {
	if err := l.Limits.Validate(); err != nil {
		return err
	}
	// Floor and hint hold a cursor each, in base64. A manifest needs room for both beside
	// its properties and lists; without it no compaction could ever be published.
	cursors := 2 * base64.StdEncoding.EncodedLen(l.Cursor)
	if least := leastRoom + cursors; l.Manifest < least || l.Manifest > MaxManifest {
		return fmt.Errorf("%w: manifests of %d bytes; possible are %d (%d for lists and properties, %d for two cursors of %d in base64) to %d",
			fence.ErrLimit, l.Manifest, least, leastRoom, cursors, l.Cursor, MaxManifest)
	}
	return nil
}
