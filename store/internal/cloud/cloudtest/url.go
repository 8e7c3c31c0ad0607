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
			secret, _ := u.User.Password()
			if text := cloud.Invalid(scheme, err).Error(); len(secret) > 7 && !strings.Contains(u.Host+u.Path+u.RawQuery, secret) && strings.Contains(text, secret) {
				t.Errorf("%q: %s", raw, text)
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
