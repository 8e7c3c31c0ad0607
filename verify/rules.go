package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// limitRule is the remedy of all findings of Rules.
const limitRule = "remove the rule, or limit it to other prefixes"

// Rules returns a finding for each lifecycle rule of the bucket that deletes objects of
// the log in st by their age (T36). A rule for nothing but tmp/ is none. Rules works before
// there is a log, to warn in time, and [Run] calls it too. A store that does not tell
// its rules fails with [errors.ErrUnsupported], and one that denies access to them with [store.ErrDenied].
func Rules(ctx context.Context, st store.Store, settle *store.SettleOptions) ([]Finding, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	teller, ok := store.As[store.ExpiryTeller](st)
	if !ok {
		return nil, fmt.Errorf("this store's lifecycle rules cannot be asked for: %w", errors.ErrUnsupported)
	}
	var all []store.Expiry
	err := store.Retry(ctx, settle, func(ctx context.Context) (err error) {
		all, err = teller.Expiries(ctx, "")
		return err
	})
	var found []Finding
	for _, e := range all {
		if slices.ContainsFunc(layout.Kinds(), func(kind string) bool { return deletes(e, kind) }) {
			found = append(found, RuleFinding(e))
		}
	}
	return found, err
}

// RuleFinding is the finding of [Rules] about one rule, for extensions that have objects beside those of a log.
func RuleFinding(e store.Expiry) Finding {
	name, where := "a lifecycle rule of the bucket", "all of the log"
	if e.Rule != "" {
		name = fmt.Sprintf("the bucket's lifecycle rule %q", e.Rule)
	}
	if e.Prefix != "" {
		where = e.Prefix
	}
	return Finding{
		What:   fmt.Sprintf("%s %s, and is for %s: objects of the log are needed at any age, and a seal that is deleted lets a zombie in", name, e.What, where),
		Remedy: limitRule,
	}
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

// overlap reports whether a key can begin with both.
func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (v *verifier) rules(ctx context.Context) error {
	found, err := Rules(ctx, v.st, v.opts.Settle)
	if err == nil && v.second() {
		var more []Finding
		more, err = Rules(ctx, v.files, v.opts.Settle)
		found = append(found, more...)
	}
	if errors.Is(err, store.ErrDenied) || errors.Is(err, errors.ErrUnsupported) {
		v.note("", "", "not looked at: the bucket's lifecycle rules, which may delete objects of the log: %v", err)
		return nil
	}
	for _, f := range found {
		v.problem(f.Key, f.Remedy, "%s", f.What)
	}
	return err
}
