package s3store

import (
	"strings"

	"github.com/fencepost/fencepost/store"
)

// versionOf returns the ETag without its quotes. Some stores leave the quotes out in
// listings and others in answers to PUT, but the version of one state must be the same
// everywhere. A weak tag (W/"…") stays as it is.
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

// etagOf returns the header for a version. It reports false for a version that no object
// in S3 can have, such as an empty one or one of another driver.
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
