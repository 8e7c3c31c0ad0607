package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

type opener = func(context.Context, *url.URL) (Store, error)

var (
	openersMu sync.RWMutex
	openers   = map[string]opener{}
)

// Register makes a driver known to [Open] under a URL scheme. Drivers call it from init.
// It panics if the scheme is registered already.
//
// Open is given the parsed URL. Open sets Op and Key of its errors: Key is the URL,
// without user, parameters and fragment, which may be secrets. So the errors must not
// repeat these.
func Register(scheme string, open func(ctx context.Context, u *url.URL) (Store, error)) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if _, dup := openers[scheme]; dup {
		panic("store: Register called twice for scheme " + scheme)
	}
	openers[scheme] = open
}

// drivers are the imports that bring a scheme, for an error's hint.
var drivers = map[string]string{
	"s3":   "github.com/fencepost/fencepost/store/s3store",
	"file": "github.com/fencepost/fencepost/store/dirstore",
	"mem":  "github.com/fencepost/fencepost/store/memstore",
	"gs":   "github.com/fencepost/fencepost/store/gcsstore",
	"az":   "github.com/fencepost/fencepost/store/azurestore",
}

// Open opens the store that a URL names:
//
//	s3://bucket/prefix?endpoint=http://host:port&region=…   package store/s3store
//	file:///absolute/dir                                    package store/dirstore
//	mem://name                                              package store/memstore
//	gs://bucket/prefix                                      package store/gcsstore
//	az://container/prefix?account=…                         package store/azurestore
//
// Each package's comment lists the parameters of its URLs. Package fencepost imports the
// first three. A program that does not import it, or needs another one, imports the
// driver's package.
//
// Open sends no request to the store, so a missing bucket shows at the first one. Errors
// are [ErrInvalid], with what to write instead, or [ErrDenied] if there are no
// credentials.
func Open(ctx context.Context, rawURL string) (Store, error) {
	bad := func(format string, args ...any) error {
		return &Error{Op: "open", Key: redact(rawURL), Kind: ErrInvalid, Hint: fmt.Sprintf(format, args...)}
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
	known := slices.Sorted(maps.Keys(openers))
	openersMu.RUnlock()
	if !ok {
		if path, ours := drivers[u.Scheme]; ours {
			return nil, bad("the driver for %s:// is not linked in; add: import _ %q", u.Scheme, path)
		}
		return nil, bad("no driver for %s://; this program knows %s; a driver is linked in by importing its package, such as: import _ %q",
			u.Scheme, cmp.Or(strings.Join(known, ", "), "no scheme at all"), drivers["s3"])
	}
	st, err := open(ctx, u)
	if err != nil {
		e := (*Error)(nil)
		if !errors.As(err, &e) {
			e = &Error{Kind: ErrInvalid, Err: err}
			err = e
		}
		e.Op, e.Key = "open", redact(rawURL)
		return nil, err
	}
	return st, nil
}

// redact cuts user, parameters and fragment out of a URL, since any of them may hold a
// secret and the result goes into errors and logs. It also takes a URL that does not
// parse. A password that was not escaped may hold characters that end it for a parser, so
// everything up to the last @ is cut, even the @ of a path.
func redact(raw string) string {
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
