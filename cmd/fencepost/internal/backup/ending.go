package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// ending is where the chain of a copy ends. The chain itself cannot tell: without its last objects it
// looks like one that was never longer.
type ending struct {
	// Records is the number of all records, Slot the first slot after the chain.
	Records uint64         `json:"records"`
	Slot    fence.Position `json:"slot"`
}

// check refuses a copy that ends elsewhere. Nil means that it is not known where it should end.
func (e *ending) check(at ending, st store.Store, advice string) error {
	// guard:backup-end. A copy counts only if its chain ends where the note of the backup says. Without
	// this check: the place of a backup loses the last object of the chain, which has acknowledged
	// records; a restore walks the chain to the first empty slot, and calls the log whole; a leader
	// goes on there; consumers read other records at the offsets of those that were lost.
	//
	//mutant:replace e == nil || *e == at => true
	if e == nil || *e == at {
		return nil
	}
	if e.Records <= at.Records && e.Slot.Before(at.Slot) {
		return fmt.Errorf("the log in %s has %d records, and the backup has %d: it has been used since; use an empty place instead", st.Traits().Name, at.Records, e.Records)
	}
	return fmt.Errorf("%w: the log in %s ends after %d records, in slot %v, and the backup ended after %d records, in slot %v: objects at its end are lost; %s",
		fence.ErrCorrupt, st.Traits().Name, at.Records, at.Slot, e.Records, e.Slot, advice)
}

// endOf compares the end of the chain in a store with what it should be. A copy has no junk: nobody
// prunes there.
func (e *ending) endOf(ctx context.Context, st store.Store, f *manifest.Format, m *state.Manifest, advice string) error {
	if e == nil {
		return nil
	}
	at := ending{m.Floor.Offset, m.Floor.Position}
	for step, err := range (&chain.Source{Store: st, Log: f.Log, Limits: f.Limits}).Walk(ctx, m.Floor) {
		if err != nil {
			return rotten(err, step.From.Position)
		}
		at = ending{step.To.Offset, step.To.Position}
	}
	return e.check(at, st, advice)
}

// oneVersion is a copy without the manifests and locks of earlier backups to the same place.
type oneVersion struct {
	store.Store
	version uint64
	old     []string
}

// oldLocks returns the locks that have a newer one after them. A copy does not need them. So it does no harm
// if one is damaged that the log has no longer.
func oldLocks(have map[string]int64) (old []string) {
	for _, prefix := range []string{layout.LockPrefix, layout.CompactorLockPrefix} {
		newest := ""
		for key := range have {
			if _, ok := layout.ParseLockKey(prefix, key); !ok {
				continue
			}
			if lower := min(newest, key); lower != "" {
				old = append(old, lower)
			}
			newest = max(newest, key)
		}
	}
	return old
}

// other reports whether a key is that of another version.
func other(key string, version uint64) bool {
	v, ok := layout.ParseManifestKey(key)
	return ok && v != version
}

func (s oneVersion) Unwrap() store.Store { return s.Store }

func (s oneVersion) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	if other(key, s.version) || slices.Contains(s.old, key) {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotFound}
	}
	return s.Store.Get(ctx, key, o)
}

func (s oneVersion) List(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, o) {
			if (err != nil || !other(info.Key, s.version) && !slices.Contains(s.old, info.Key)) && !yield(info, err) {
				return
			}
		}
	}
}

// formatted is a copy that has no format.json yet, with the one that it will have.
type formatted struct {
	store.Store
	body []byte
}

func (s formatted) Unwrap() store.Store { return s.Store }

func (s formatted) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	if key != layout.FormatKey {
		return s.Store.Get(ctx, key, o)
	}
	return &store.Object{Info: store.Info{Key: key, Version: "not written yet", Size: int64(len(s.body))}, Body: io.NopCloser(bytes.NewReader(s.body))}, nil
}
