package manifest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// maxFormat bounds format.json, in bytes.
const maxFormat = 1 << 20

// Format is the content of format.json: what everybody has to know before
// touching anything else.
type Format struct {
	// Version of the layout. A program refuses a log with one it does not know.
	Version int `json:"format"`
	// Requires names features that a program must know to use the log.
	Requires []string `json:"requires,omitempty"`
	// Log is the identity of the log, in every object.
	Log     fence.ID  `json:"log"`
	Created time.Time `json:"created"`
	Limits  Limits    `json:"limits"`
	// Grace is how long what a manifest no longer needs is kept for readers that
	// still follow an older one, and for listings under way. Readers look for a
	// newer one twice as often.
	Grace Duration `json:"grace"`
	// Probe is what was found out about the store.
	Probe *probe.Report `json:"probe,omitempty"`
}

// Limits of a log, in bytes.
type Limits struct {
	fence.Limits
	// Manifest bounds a manifest. It is at most [MaxManifest], and at least what
	// the cursors of one take and 256 KiB.
	Manifest int `json:"manifest"`
}

// MaxManifest is the greatest limit of a manifest.
const MaxManifest = 64 << 20

// DefaultLimits are fence.DefaultLimits() and 8 MiB a manifest.
func DefaultLimits() Limits { return Limits{Limits: fence.DefaultLimits(), Manifest: 8 << 20} }

const (
	// DefaultGrace is ten minutes.
	DefaultGrace = 10 * time.Minute
	// MinGrace is more than a listing takes within the store. The listings of some
	// stores are not atomic (versitygw, MinIO): they show everything that is there
	// all the while, but may miss both the newest manifest, deleted meanwhile, and
	// the one that took its place. A superseded manifest is therefore kept for the
	// grace period, which here serves safety.
	MinGrace = time.Second
)

// Validate returns an error that is fence.ErrLimit if no log can have these
// limits.
func (l Limits) Validate() error {
	if err := l.Limits.Validate(); err != nil {
		return err
	}
	// Floor and hint hold a cursor each, in base64. A manifest that had no room for
	// those, and beside them for its properties and what it holds of its lists, would
	// end compaction for ever.
	cursors := 2 * base64.StdEncoding.EncodedLen(l.Cursor)
	if least := leastRoom + cursors; l.Manifest < least || l.Manifest > MaxManifest {
		return fmt.Errorf("%w: manifests of %d bytes; possible are %d (%d for lists and properties, %d for two cursors of %d in base64) to %d",
			fence.ErrLimit, l.Manifest, least, leastRoom, cursors, l.Cursor, MaxManifest)
	}
	return nil
}

// leastRoom is what a manifest has beside its cursors, at least. Five lists may take
// an eighth of that each, and so may the properties; the rest is for the names of
// pages.
const leastRoom = 256 << 10

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

// InitOptions describe a new log. The zero value works. They are without effect
// on a log that exists.
type InitOptions struct {
	// Limits that are 0 become those of [DefaultLimits].
	Limits Limits
	// Grace is [DefaultGrace] if 0, and otherwise at least [MinGrace]. A negative
	// one means none: only for tests, on a store whose listings are atomic.
	Grace time.Duration
	// Probe configures the probe of the store. It cannot be left out: a store
	// that does not keep its promises loses data silently.
	Probe *probe.Options
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock tells when the log was created; the machine's by default.
	Clock clock.Clock
}

// Validate tells what is wrong with the options, as [Init] would. It does no I/O;
// nil is valid. Errors: fence.ErrLimit, or a grace that is too short.
func (o *InitOptions) Validate() error {
	_, err := o.withDefaults()
	return err
}

func (o *InitOptions) withDefaults() (InitOptions, error) {
	var v InitOptions
	if o != nil {
		v = *o
	}
	or := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	or(&v.Limits.Object, DefaultLimits().Object)
	or(&v.Limits.Record, min(DefaultLimits().Record, max(v.Limits.Object-binary.MaxVarintLen32, 0)))
	or(&v.Limits.Cursor, DefaultLimits().Cursor)
	or(&v.Limits.Manifest, DefaultLimits().Manifest)
	switch {
	case v.Grace == 0:
		v.Grace = DefaultGrace
	case v.Grace < 0:
		v.Grace = 0
	case v.Grace < MinGrace:
		return v, fmt.Errorf("manifest: a grace of %v is too short: it must be at least %v, so that what a listing is about to show is not deleted under it", v.Grace, MinGrace)
	}
	v.Clock = clock.Or(v.Clock)
	if err := v.Limits.Validate(); err != nil {
		return v, fmt.Errorf("manifest: a log cannot have these limits: %w", err)
	}
	return v, nil
}

// Init makes st a log, unless it is one already, and returns its format. It
// probes the store first and refuses one that does not keep the promises that
// the protocol needs. Of several at once one wins and all return the same.
//
// Errors: fence.ErrLimit; probe.ErrRefused; [fence.ErrFormat]; [fence.ErrCorrupt], also if
// there is a log whose format.json is missing.
func Init(ctx context.Context, st store.Store, opts *InitOptions) (Format, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return Format{}, err
	}
	f, err := ReadFormat(ctx, st, o.Settle)
	if !errors.Is(err, ErrNotInitialized) {
		return f, err
	}
	// guard:init-lost. A log that lost its format.json must not get another
	// identity: all its objects would look like another log's.
	//
	//mutant:replace []string{layout.ManifestPrefix, layout.DataPrefix} => []string{}
	for _, prefix := range []string{layout.ManifestPrefix, layout.DataPrefix} {
		for info, err := range store.ListAll(ctx, st, prefix, nil, o.Settle) {
			if err != nil {
				return Format{}, err
			}
			// Somebody may have created the log since we looked.
			if f, err := ReadFormat(ctx, st, o.Settle); !errors.Is(err, ErrNotInitialized) {
				return f, err
			}
			return Format{}, document.Corrupt(layout.FormatKey, "it is missing, but %s is there; if that is a log's, restore %s from a backup, or remove everything under %s if the log is not needed; if it is not, choose another prefix",
				info.Key, layout.FormatKey, st.Traits().Name)
		}
	}
	report, err := probe.Run(ctx, st, o.Probe)
	if err != nil {
		return Format{}, err
	}
	f = Format{
		Version: document.Format, Log: fence.ID(uuid.New()), Created: o.Clock.Wall().UTC().Truncate(time.Second),
		Limits: o.Limits, Grace: Duration(o.Grace), Probe: report,
	}
	body, err := f.encode()
	if err != nil {
		return Format{}, err
	}
	// The log's id is the nonce: no two bodies are equal.
	_, err = store.Create(ctx, st, layout.FormatKey, body, &store.WriteOptions{Settle: o.Settle})
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		return Format{}, err
	}
	return ReadFormat(ctx, st, o.Settle)
}

// ReadFormat reads format.json. Errors: [ErrNotInitialized], [fence.ErrFormat],
// [fence.ErrCorrupt].
func ReadFormat(ctx context.Context, st store.Store, settle *store.SettleOptions) (Format, error) {
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

func (f *Format) encode() ([]byte, error) {
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return append(b, '\n'), nil
}

func decodeFormat(body []byte) (Format, error) {
	var f Format
	err := json.Unmarshal(body, &f)
	if err := document.Readable(layout.FormatKey, body, f.Version, f.Requires, err); err != nil {
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
	return f, nil
}
