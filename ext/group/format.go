package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

// format is group.json.
type format struct {
	Version    int           `json:"format"`
	Requires   []string      `json:"requires,omitempty"`
	Group      fence.ID      `json:"group"`
	Name       string        `json:"name,omitempty"`
	Partitions int           `json:"partitions"`
	Base       fence.Epoch   `json:"base,omitempty"`
	ValidityMS int64         `json:"validity_ms"`
	Created    time.Time     `json:"created"`
	Nonce      string        `json:"nonce"`
	Probe      *probe.Report `json:"probe,omitempty"`
}

func (f *format) validity() time.Duration { return time.Duration(f.ValidityMS) * time.Millisecond }

func decodeFormat(body []byte) (format, error) {
	var f format
	if err := document.Decode(member.FormatKey, body, &f); err != nil {
		return format{}, err
	}
	switch {
	case f.Group == fence.ID{}:
		return format{}, document.Corrupt(member.FormatKey, "it has no group")
	case f.Partitions < 1 || f.Partitions > assign.MaxPartitions:
		return format{}, document.Corrupt(member.FormatKey, "partitions is %d, not 1 to %d", f.Partitions, assign.MaxPartitions)
	case f.Base > assign.MaxBase:
		return format{}, document.Corrupt(member.FormatKey, "base is %d, more than %d", f.Base, uint64(assign.MaxBase))
	case f.ValidityMS > maxValidity.Milliseconds() || !validValidity(f.validity()):
		return format{}, document.Corrupt(member.FormatKey, "validity_ms is %d", f.ValidityMS)
	}
	return f, nil
}

func (f *format) encode() ([]byte, error) { return document.Encode(member.FormatKey, f) }

func readFormat(ctx context.Context, st store.Store, settle *store.SettleOptions) (format, store.Version, error) {
	body, info, err := store.Read(ctx, st, member.FormatKey, &store.ReadOptions{Limit: maxSmall, Settle: settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return format{}, "", fmt.Errorf("%w: %s has no %s; check the URL, or start the first worker with a number of partitions (Partitions, fencepost exec --group --partitions)", ErrNoGroup, st.Traits().Name, member.FormatKey)
	case errors.Is(err, store.ErrTooLarge):
		return format{}, "", document.Corrupt(member.FormatKey, "%v", err)
	case err != nil:
		return format{}, "", err
	}
	f, err := decodeFormat(body)
	return f, info.Version, err
}

// Partitions returns how many partitions the group in st has. Errors: [ErrNoGroup]; fence.ErrFormat and
// fence.ErrCorrupt; errors of the store.
func Partitions(ctx context.Context, st store.Store) (int, error) {
	if err := given(st, nil); err != nil {
		return 0, err
	}
	f, _, err := readFormat(ctx, st, &store.SettleOptions{})
	return f.Partitions, err
}

// Create makes sure that the group exists and has at least Options.Partitions partitions, as [Join] does,
// and makes nobody a member. Errors: as of [Join].
func Create(ctx context.Context, st store.Store, opts *Options) error {
	if err := given(st, opts); err != nil {
		return err
	}
	o := *cmp.Or(opts, &Options{})
	o.Clock = clock.Or(o.Clock)
	_, err := found(ctx, st, &o, &store.SettleOptions{Clock: o.Clock})
	return err
}

// found makes sure that the group exists, and has as many partitions as o says.
func found(ctx context.Context, st store.Store, o *Options, settle *store.SettleOptions) (format, error) {
	f, version, err := readFormat(ctx, st, settle)
	if errors.Is(err, ErrNoGroup) && o.Partitions > 0 {
		f, version, err = create(ctx, st, o, settle)
	}
	for {
		if err != nil {
			return format{}, err
		}
		if err := o.fits(&f); err != nil {
			return format{}, err
		}
		if o.Partitions <= f.Partitions {
			return f, nil
		}
		f.Partitions, f.Nonce = o.Partitions, newNonce()
		body, err1 := f.encode()
		if err1 != nil {
			return format{}, err1
		}
		if _, err = store.Swap(ctx, st, member.FormatKey, body, version, &store.WriteOptions{Settle: settle}); err == nil || errors.Is(err, store.ErrPrecondition) {
			f, version, err = readFormat(ctx, st, settle)
		}
	}
}

// fits reports how the options contradict the group.
func (o *Options) fits(f *format) error {
	var bad []error
	if o.Partitions > 0 && o.Partitions < f.Partitions {
		bad = append(bad, fmt.Errorf("%w: Partitions is %d, but the group has %d, and partitions are never removed: set it to %d or to 0", ErrOptions, o.Partitions, f.Partitions, f.Partitions))
	}
	if o.Name != f.Name {
		bad = append(bad, fmt.Errorf("%w: Name is %q, but the group under this prefix is called %q: choose another prefix", ErrOptions, o.Name, f.Name))
	}
	if o.Validity != 0 && o.Validity != f.validity() {
		bad = append(bad, fmt.Errorf("%w: Validity is %v, but that of the group is %v, for all members: set it to that or to 0", ErrOptions, o.Validity, f.validity()))
	}
	return errors.Join(bad...)
}

func create(ctx context.Context, st store.Store, o *Options, settle *store.SettleOptions) (format, store.Version, error) {
	// guard:group-lost. No group.json is created while there are assignments of a group.
	//
	//mutant:replace store.ListAll(ctx, st, member.AssignPrefix, nil, settle) => store.ListAll(ctx, st, "none/", nil, settle)
	for info, err := range store.ListAll(ctx, st, member.AssignPrefix, nil, settle) {
		if err != nil {
			return format{}, "", err
		}
		if f, v, err := readFormat(ctx, st, settle); !errors.Is(err, ErrNoGroup) {
			return f, v, err // somebody has just created it
		}
		return format{}, "", document.Corrupt(member.FormatKey, "it is missing, but %s is there; restore %s from a backup; without one remove everything under %s, and create the group with a Base above the highest epoch of its partitions' logs",
			info.Key, member.FormatKey, member.Prefix)
	}
	if err := roomy(ctx, st); err != nil {
		return format{}, "", err
	}
	report, err := probe.Run(ctx, st, o.Probe)
	if err != nil {
		return format{}, "", err
	}
	validity := o.Validity
	if validity == 0 {
		validity = defaultValidity
	}
	f := format{
		Version: document.Format, Group: fence.ID(uuid.New()), Name: o.Name, Partitions: o.Partitions, Base: o.Base,
		ValidityMS: validity.Milliseconds(), Created: o.Clock.Wall().UTC().Truncate(time.Second), Nonce: newNonce(), Probe: report,
	}
	body, err := f.encode()
	if err != nil {
		return format{}, "", err
	}
	_, err = store.Create(ctx, st, member.FormatKey, body, &store.WriteOptions{Settle: settle})
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		return format{}, "", err
	}
	return readFormat(ctx, st, settle)
}

// roomy returns an error if the logs of the partitions would have too long keys. The store refuses such a key by itself.
func roomy(ctx context.Context, st store.Store) error {
	o, err := st.Get(ctx, PartitionPrefix(0)+"/"+strings.Repeat("x", manifest.MaxKey), nil)
	if err == nil {
		err = o.Body.Close()
	}
	if errors.Is(err, store.ErrInvalid) {
		return fmt.Errorf("%w: the prefix of %s is too long for the logs of partitions: %w", ErrOptions, st.Traits().Name, err)
	}
	return nil // whatever else is wrong, the probe finds
}

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}

func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil || host == "" || len(host) > 255 || !printable(host) {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
