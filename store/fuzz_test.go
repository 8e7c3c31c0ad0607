package store_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// Whatever is given as a URL: Open panics never, and its errors hold neither user
// information nor parameters, whether or not it is a URL at all.
func FuzzOpen(f *testing.F) {
	for _, raw := range []string{
		"", "x", "nowhere://user:PASSWORD@host/path?sig=PARAMETER#PARAMETER", "nowhere://u:PASS/WORD@h", "%zz://PASSWORD@h", "://", "s3://b?x=PARAMETER", "PASSWORD@h", "PASSWORD://PASSWORD@", "s3://u:PASS#PASSWORD@h", "s3://u:PASSWORD?x@h", "PASSWORD#@",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if u, err := url.Parse(raw); err == nil && (u.Scheme == "mem" || strings.HasPrefix(u.Scheme, "fuzz")) {
			return // registered by other tests
		}
		st, err := store.Open(context.Background(), raw)
		if !errors.Is(err, store.ErrInvalid) || st != nil {
			t.Fatalf("%q: %v, %v", raw, st, err)
		}
		// What lies between the scheme and the last @, wherever that is: a password that
		// was not escaped may hold anything. And the parameters.
		scheme, rest, found := strings.Cut(raw, "://")
		if !found {
			scheme, rest = "", raw
		}
		user, shown := "", rest
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			user, shown = rest[:i], rest[i+1:]
		}
		var parameters string
		if i := strings.IndexAny(shown, "?#"); i >= 0 {
			shown, parameters = shown[:i], shown[i:]
		}
		for _, secret := range strings.FieldsFunc(user+"?"+parameters, func(r rune) bool { return strings.ContainsRune("?#@", r) }) {
			if strings.Contains(shown, secret) || strings.Contains(scheme, secret) {
				continue // the same again, where there are no secrets
			}
			if (strings.Contains(secret, "PASSWORD") || strings.Contains(secret, "PARAMETER")) && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", raw, err)
			}
		}
	})
}
