package store

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Opener opens the store that a URL names.
type Opener func(ctx context.Context, u *url.URL) (Store, error)

var (
	openersMu sync.RWMutex
	openers   = map[string]Opener{}
)

// Register makes a driver known under a URL scheme. Drivers call it from init;
// a scheme registered twice panics, since it is a mistake of the program.
func Register(scheme string, open Opener) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if _, dup := openers[scheme]; dup {
		panic("store: Register called twice for scheme " + scheme)
	}
	openers[scheme] = open
}

// drivers tells an error which import brings which scheme.
var drivers = map[string]string{
	"s3":   "github.com/fencepost/fencepost/store/s3store",
	"file": "github.com/fencepost/fencepost/store/dirstore",
	"mem":  "github.com/fencepost/fencepost/store/memstore",
	"gs":   "github.com/fencepost/fencepost/store/gcsstore",
	"az":   "github.com/fencepost/fencepost/store/azurestore",
}

// Open opens the store that a URL names, with the driver registered for its
// scheme:
//
//	s3://bucket/prefix?endpoint=http://host:port&region=…   package store/s3store
//	file:///absolute/dir                                    package store/dirstore
//	mem://name                                              package store/memstore
//
// Package fencepost imports these three; who does without it imports the driver.
// Errors are [ErrInvalid] with what to do about it; Open itself sends no
// request, a missing bucket shows at the first one.
func Open(ctx context.Context, rawURL string) (Store, error) {
	bad := func(format string, args ...any) error {
		return &Error{Op: "open", Key: RedactURL(rawURL), Kind: ErrInvalid, Hint: fmt.Sprintf(format, args...)}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		// The parser's error repeats the URL, which may hold a password.
		return nil, bad("not a URL; write s3://bucket/prefix or file:///dir")
	}
	if u.Scheme == "" {
		return nil, bad("the URL has no scheme; write s3://bucket/prefix, or file:///dir for a directory")
	}
	openersMu.RLock()
	open, ok := openers[u.Scheme]
	known := make([]string, 0, len(openers))
	for s := range openers {
		known = append(known, s)
	}
	openersMu.RUnlock()
	if !ok {
		slices.Sort(known)
		if path, ours := drivers[u.Scheme]; ours {
			return nil, bad("the driver for %s:// is not linked in; add: import _ %q", u.Scheme, path)
		}
		return nil, bad("no driver for %s://; this program knows %s; a driver is linked in by importing its package, such as: import _ %q",
			u.Scheme, cmp.Or(strings.Join(known, ", "), "no scheme at all"), drivers["s3"])
	}
	return open(ctx, u)
}

// RedactURL cuts user information, parameters and fragment out of a URL, also of one
// that does not parse: any may hold a secret, and what it returns goes into errors and
// logs. A password that was not escaped may hold what ends it for a parser, so all up to
// the last @ is cut, also where a path has one.
func RedactURL(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", raw
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		if strings.Contains(rest[i:], "@") { // where a password that was not escaped ends, perhaps
			return scheme + "…"
		}
		rest = rest[:i] + rest[i:i+1] + "…"
	}
	// Up to the last @: a password that was not escaped may hold a slash.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = "…" + rest[i:]
	}
	return scheme + rest
}
