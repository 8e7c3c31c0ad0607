package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/member"
	"github.com/fencepost/fencepost/store"
)

// limitRule is the remedy of all findings of Rules.
const limitRule = "remove the rule, or limit it to other prefixes"

// Rules returns a finding for each lifecycle rule of the bucket that deletes objects of
// the log in st by their age (T36). A rule for nothing but tmp/ is none. If there is a group of
// workers in st, a rule that deletes its objects, or those of its logs, has a finding too. Rules works before
// there is a log, to warn in time, and [Run] and [RunGroup] call it too. A store that does not tell
// its rules has none; one that denies access to them fails with [store.ErrDenied].
func Rules(ctx context.Context, st store.Store, settle *store.SettleOptions) ([]Finding, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	teller, ok := store.As[store.ExpiryTeller](st)
	if !ok {
		return nil, nil
	}
	var all []store.Expiry
	err := store.Retry(ctx, settle, func(ctx context.Context) (err error) {
		all, err = teller.Expiries(ctx, "")
		return err
	})
	var found []Finding
	for _, e := range all {
		bad := slices.ContainsFunc(layout.Kinds(), func(kind string) bool { return deletes(e, kind) })
		if !bad && slices.ContainsFunc(groupPrefixes(), func(prefix string) bool { return overlap(e.Prefix, prefix) }) && !ofProbes(e.Prefix) {
			var lerr error
			if bad, lerr = hasGroup(ctx, st, settle); lerr != nil && !errors.Is(lerr, store.ErrDenied) {
				return found, lerr // who may read only the log cannot know
			}
		}
		if !bad {
			continue
		}
		name, where := "a lifecycle rule of the bucket", "all of the log"
		if e.Rule != "" {
			name = fmt.Sprintf("the bucket's lifecycle rule %q", e.Rule)
		}
		if e.Prefix != "" {
			where = e.Prefix
		}
		found = append(found, Finding{
			What:   fmt.Sprintf("%s %s, and is for %s: objects of the log are needed at any age, and a seal that is deleted lets a zombie in", name, e.What, where),
			Remedy: limitRule,
		})
	}
	return found, err
}

// deletes reports whether a rule covers objects of a kind that have to stay.
func deletes(e store.Expiry, kind string) bool {
	switch kind {
	case layout.KindTmp, layout.KindUnknown:
		return false
	case layout.KindFormat:
		return strings.HasPrefix(layout.FormatKey, e.Prefix) //nolint:gocritic // a rule's prefix may be the beginning of our key
	}
	return overlap(e.Prefix, kind+"/")
}

// ofProbes reports whether a prefix has nothing of a group but what probes of its logs, or of its compactors' group,
// write.
func ofProbes(prefix string) bool {
	rest, ok := strings.CutPrefix(prefix, layout.CompactorsPrefix+"/")
	if !ok {
		if rest, ok = strings.CutPrefix(prefix, layout.PartitionsPrefix); ok {
			_, rest, ok = strings.Cut(rest, "/")
		}
	}
	return ok && strings.HasPrefix(rest, layout.TmpPrefix)
}

// hasGroup reports whether there is a group, or the log of its first partition. Other objects may have such names, too.
func hasGroup(ctx context.Context, st store.Store, settle *store.SettleOptions) (bool, error) {
	for _, key := range []string{member.FormatKey, layout.PartitionPrefix(0) + "/" + layout.FormatKey} {
		_, _, err := store.Read(ctx, st, key, &store.ReadOptions{Limit: 1 << 20, Settle: settle})
		switch {
		case err == nil, errors.Is(err, store.ErrTooLarge):
			return true, nil
		case !errors.Is(err, store.ErrNotFound):
			return false, err
		}
	}
	return false, nil
}

// overlap reports whether a key can begin with both.
func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// unruled is a store whose lifecycle rules are told elsewhere.
type unruled struct{ store.Store }

func (unruled) Expiries(context.Context, string) ([]store.Expiry, error) { return nil, nil }

func (v *verifier) rules(ctx context.Context) error {
	found, err := Rules(ctx, v.st, v.opts.Settle)
	if err == nil && v.second() {
		var more []Finding
		more, err = Rules(ctx, v.files, v.opts.Settle)
		found = append(found, more...)
	}
	if errors.Is(err, store.ErrDenied) {
		v.note("", "", "not allowed to read the bucket's lifecycle rules, which may delete objects of the log: %v", err)
		return nil
	}
	for _, f := range found {
		v.problem(f.Key, f.Remedy, "%s", f.What)
	}
	return err
}
