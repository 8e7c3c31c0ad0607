package manifest

import (
	"context"
	"errors"
	"fmt"
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
	// Probe is what the probe of the store has found.
	Probe *probe.Report `json:"probe,omitempty"`
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
	if err := document.Decode(layout.FormatKey, body, &f); err != nil {
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
