package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// Rules returns a finding for each lifecycle rule of the bucket that deletes objects of the group in st, of its logs,
// or of a log beside it, as verify.Rules does for one log. Where there is no group, it returns what that says of a log.
// The errors are those of verify.Rules.
func Rules(ctx context.Context, st store.Store, settle *store.SettleOptions) ([]verify.Finding, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	found, err := verify.Rules(ctx, st, settle)
	teller, ok := store.As[store.ExpiryTeller](st)
	if err != nil || !ok {
		return found, err
	}
	var all []store.Expiry
	if err := store.Retry(ctx, settle, func(ctx context.Context) (err error) {
		all, err = teller.Expiries(ctx, "")
		return err
	}); err != nil {
		return found, err
	}
	for _, e := range all {
		f := verify.RuleFinding(e)
		overlaps := func(prefix string) bool {
			return strings.HasPrefix(e.Prefix, prefix) || strings.HasPrefix(prefix, e.Prefix)
		}
		if slices.Contains(found, f) || !slices.ContainsFunc(prefixes, overlaps) || ofProbes(e.Prefix) {
			continue
		}
		is, err := has(ctx, st, settle)
		if err != nil && !errors.Is(err, store.ErrDenied) {
			return found, err // who may read only the log cannot know
		}
		if is {
			found = append(found, f)
		}
	}
	return found, nil
}

// ofProbes reports whether a prefix has nothing of a group but what probes of its logs, or of its compactors' group,
// write.
func ofProbes(prefix string) bool {
	rest, ok := strings.CutPrefix(prefix, CompactorsPrefix)
	if !ok {
		if rest, ok = strings.CutPrefix(prefix, PartitionsPrefix); ok {
			_, rest, ok = strings.Cut(rest, "/")
		}
	}
	return ok && strings.HasPrefix(rest, "tmp/")
}

// has reports whether there is a group, or the log of its first partition. Other objects may have such names, too.
func has(ctx context.Context, st store.Store, settle *store.SettleOptions) (bool, error) {
	_, _, err := store.Read(ctx, st, FormatKey, &store.ReadOptions{Limit: 1 << 20, Settle: settle})
	if err == nil || errors.Is(err, store.ErrTooLarge) {
		return true, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	log, err := PartitionStore(st, 0)
	if err != nil {
		return false, err
	}
	switch _, err = manifest.ReadFormat(ctx, log, settle); {
	case errors.Is(err, manifest.ErrNotInitialized):
		return false, nil
	case err == nil, errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
		return true, nil
	}
	return false, err
}

// unruled is a store whose lifecycle rules are told elsewhere.
type unruled struct{ store.Store }

// Unwrap implements [store.Wrapper].
func (u unruled) Unwrap() store.Store { return u.Store }

func (unruled) Expiries(context.Context, string) ([]store.Expiry, error) { return nil, nil }
