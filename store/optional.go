package store

import (
	"context"
	"errors"
	"strings"
)

// Wrapper is what a store also implements if it stands in front of another one with the same
// keys: to count requests, to log them, to slow down. Then callers find what the store below
// implements besides, such as [UploadAborter]. A store that changes keys must not be a
// Wrapper: it implements these interfaces itself, as [Sub] does.
type Wrapper interface {
	Store
	// Unwrap returns the store below.
	Unwrap() Store
}

// As returns st as a T, an interface that a driver may implement besides [Store]:
// As[UploadAborter](st). If st is none and a [Wrapper], it looks at the store below.
func As[T any](st Store) (found T, ok bool) {
	for !IsNil(st) {
		if found, ok = st.(T); ok {
			return found, true
		}
		w, wraps := st.(Wrapper)
		if !wraps {
			break
		}
		st = w.Unwrap()
	}
	return found, false
}

// UploadAborter is what a driver also implements if an interrupted upload can leave
// parts that nobody sees and the bucket's owner pays for. Drivers whose leftovers
// are objects with names of their own, or that delete them themselves, need not. Use [As] to
// find it.
//
// Every store that [Sub] returns is an UploadAborter. It does nothing if the store below
// is none.
type UploadAborter interface {
	// AbortUploads ends the incomplete uploads for keys that begin with prefix and that
	// doomed picks, and returns how many it ended. The Info that doomed gets has the key
	// of the future object, the time at which the upload began as LastModified, and the
	// store's clock as Date. A client that is still uploading gets an error. AbortUploads
	// touches no complete object, and no upload that begins after the call. Prefix is
	// empty or ends in "/".
	AbortUploads(ctx context.Context, prefix string, doomed func(Info) bool) (int, error)
}

// ExpiryTeller is what a driver also implements if the store can delete objects by
// itself and can tell by which rules, or if it never does. Every store that [Sub] returns is one; it fails with
// [errors.ErrUnsupported] if the store below is none.
type ExpiryTeller interface {
	// Expiries returns the rules for any key that begins with prefix. Left out are rules
	// for old versions, for incomplete uploads and for objects with tags. Each call reads
	// the rules in one request, which may need rights of its own: [ErrDenied].
	Expiries(ctx context.Context, prefix string) ([]Expiry, error)
}

// Expiry is a rule by which a bucket deletes objects, or moves them to where they cannot
// be read at once. S3 calls it a lifecycle rule.
type Expiry struct {
	// Rule is its name; may be empty.
	Rule string
	// Prefix is what the keys begin with to which it applies.
	Prefix string
	// What it does, in words: "deletes objects after 30 days".
	What string
}

func (s *sub) AbortUploads(ctx context.Context, prefix string, doomed func(Info) bool) (int, error) {
	if err := CheckPrefix("abort", prefix); err != nil {
		return 0, err
	}
	st, ok := As[UploadAborter](s.st)
	if !ok {
		return 0, nil
	}
	return st.AbortUploads(ctx, s.prefix+prefix, func(info Info) bool {
		info.Key = strings.TrimPrefix(info.Key, s.prefix)
		return doomed(info)
	})
}

func (s *sub) Expiries(ctx context.Context, prefix string) ([]Expiry, error) {
	st, ok := As[ExpiryTeller](s.st)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	rules, err := st.Expiries(ctx, s.prefix+prefix)
	for i, r := range rules {
		// A rule for a longer prefix applies to a part of this store, a rule for a shorter
		// one to all of it.
		inside, ok := strings.CutPrefix(r.Prefix, s.prefix)
		if !ok {
			inside = ""
		}
		rules[i].Prefix = inside
	}
	return rules, err
}
