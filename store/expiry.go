package store

import (
	"context"
	"strings"
)

// Expiry is a rule of a bucket that takes objects away, or to where they cannot be
// read at once, though nobody asks for it: S3 calls it a lifecycle rule.
type Expiry struct {
	// Rule is its name; it may have none.
	Rule string
	// Prefix is what the keys that it is for begin with.
	Prefix string
	// What it does, in words: "deletes objects after 30 days".
	What string
}

// ExpiryTeller is a [Store] that can tell the rules of its bucket.
type ExpiryTeller interface {
	// Expiries returns those that are for keys which begin with prefix, or for some
	// of them. Rules for old versions, for uploads that broke off and for objects with
	// tags are none. The rules are read for each call, in one request, for which rights
	// of their own may be needed: [ErrDenied]. A store that knows no such rules has
	// none.
	Expiries(ctx context.Context, prefix string) ([]Expiry, error)
}

// Expiries calls st's method if it is an [ExpiryTeller]. Otherwise nothing is known
// of any.
func Expiries(ctx context.Context, st Store, prefix string) ([]Expiry, error) {
	if t, ok := st.(ExpiryTeller); ok {
		return t.Expiries(ctx, prefix)
	}
	return nil, nil
}

// Expiries implements [ExpiryTeller].
func (s *sub) Expiries(ctx context.Context, prefix string) ([]Expiry, error) {
	rules, err := Expiries(ctx, s.st, s.prefix+prefix)
	for i, r := range rules {
		// One for all of the prefix and more is one for all keys here.
		inside, ok := strings.CutPrefix(r.Prefix, s.prefix)
		if !ok {
			inside = ""
		}
		rules[i].Prefix = inside
	}
	return rules, err
}
