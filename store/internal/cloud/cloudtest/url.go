package cloudtest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// FuzzURL gives a driver all kinds of URLs of its scheme. Whatever one says, it is a
// place that requests can go to, without credentials in it, or an error that repeats
// none. parse returns the bucket, and an endpoint if the URL names one.
func FuzzURL(f *testing.F, scheme string, seeds []string, parse func(u *url.URL) (bucket, endpoint string, err error)) {
	for _, raw := range seeds {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != scheme {
			return
		}
		bucket, endpoint, err := parse(u)
		if err != nil {
			// A word of the error may be the password by chance. So the error must be the same with
			// another password.
			text := cloud.Invalid(scheme, err).Error()
			if _, has := u.User.Password(); has {
				other := *u
				other.User = url.UserPassword(u.User.Username(), "other-secret")
				if _, _, err := parse(&other); err == nil || cloud.Invalid(scheme, err).Error() != text {
					t.Errorf("%q: %s, but with another password %v", raw, text, err)
				}
			}
			return
		}
		if u.User != nil || bucket == "" || strings.Contains(bucket, ":") {
			t.Errorf("%q is in %q", raw, bucket)
		}
		if endpoint == "" {
			return
		}
		at, err := url.Parse(endpoint)
		if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Scheme != "http" && at.Scheme != "https" {
			t.Errorf("%q goes to %q, %v", raw, endpoint, err)
		}
	})
}
