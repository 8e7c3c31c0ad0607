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

// Expiries returns the rules of the bucket that take away what is part of the log in
// st, or what keeps zombies out, by its age (T36): those for any objects below st but
// tmp/. A store that does not tell its rules has none here; one that does not let
// them be read fails with [store.ErrDenied].
func Expiries(ctx context.Context, st store.Store, opts *store.SettleOptions) ([]store.Expiry, error) {
	teller, ok := st.(store.ExpiryTeller)
	if !ok {
		return nil, nil
	}
	var all []store.Expiry
	err := store.Retry(ctx, opts, func(ctx context.Context) (err error) {
		all, err = teller.Expiries(ctx, "")
		return err
	})
	return slices.DeleteFunc(all, func(e store.Expiry) bool {
		return !slices.ContainsFunc(Kinds, func(kind string) bool {
			switch kind {
			case KindTmp, KindUnknown:
				return false
			case KindFormat:
				key := layout.FormatKey
				return strings.HasPrefix(key, e.Prefix)
			}
			return strings.HasPrefix(kind+"/", e.Prefix) || strings.HasPrefix(e.Prefix, kind+"/")
		})
	}), err
}

// rules looks for them.
func (v *verifier) rules(ctx context.Context) error {
	found, err := Expiries(ctx, v.st, v.opts.Settle)
	if errors.Is(err, store.ErrDenied) {
		v.note("", "", "whether lifecycle rules of the bucket delete objects of the log could not be seen: %v", err)
		return nil
	}
	for _, e := range found {
		v.problem("", "remove the rule, or limit it to other prefixes", "%s", Warning(e))
	}
	return err
}

// Warning says what a rule that [Expiries] found does to the log.
func Warning(e store.Expiry) string {
	name, where := "a lifecycle rule of the bucket", "all of the log"
	if e.Rule != "" {
		name = fmt.Sprintf("the bucket's lifecycle rule %q", e.Rule)
	}
	if e.Prefix != "" {
		where = e.Prefix
	}
	return fmt.Sprintf("%s %s, and is for %s: objects of the log are not old when they are no longer needed, and a seal that is deleted lets a zombie in", name, e.What, where)
}
