package s3store

import (
	"strings"

	"github.com/fencepost/fencepost/store"
)

// etagOf returns the header for a version. It reports false for a version that no object
// in S3 can have, such as an empty one or one of another driver, and for "*", which would match
// any object.
func etagOf(v store.Version, unquoted bool) (etag string, sendable bool) {
	weak := strings.HasPrefix(string(v), `W/"`)
	bad := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' && !weak }
	switch {
	case v == "" || v == "*" || strings.ContainsFunc(string(v), bad):
		return "", false
	case unquoted || weak:
		return string(v), true
	}
	return `"` + string(v) + `"`, true
}
