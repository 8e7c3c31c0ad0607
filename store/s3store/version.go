package s3store

import (
	"strings"

	"github.com/fencepost/fencepost/store"
)

// A version is the ETag without its quotes. They are not part of it: some
// stores leave them out in listings and others in answers to PUT, and the
// version of one state must be the same wherever it is read. Beyond that it is
// opaque; a weak tag (W/"…") stays as it is.

func versionOf(etag *string) store.Version {
	if etag == nil {
		return ""
	}
	v := strings.TrimSpace(*etag)
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	return store.Version(v)
}

// etagOf is the header for a version. Not every version can be sent: that of
// another driver, or none at all, never matches anything in S3.
func etagOf(v store.Version, unquoted bool) (etag string, sendable bool) {
	if v == "" {
		return "", false
	}
	weak := strings.HasPrefix(string(v), `W/"`)
	for _, c := range []byte(v) {
		if c <= ' ' || c >= 0x7f || c == '"' && !weak {
			return "", false
		}
	}
	if unquoted || weak {
		return string(v), true
	}
	return `"` + string(v) + `"`, true
}
