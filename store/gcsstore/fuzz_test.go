package gcsstore

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Whatever a URL says, it is a place that requests can go to, without credentials in
// it, or an error that repeats none.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"gs://bucket/prefix",
		"gs://bucket?endpoint=http://127.0.0.1:4443",
		"gs://AK:secret-secret@bucket/x",
		"gs://bucket:80/x",
		"gs:b",
		"gs://b?endpoint=https://h/path",
		"gs://b?endpoint=http://a:secret-secret@h",
		"gs://b?part-size=x",
		"gs://b?%zz",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "gs" {
			return
		}
		got, err := parse(u)
		if err != nil {
			secret, _ := u.User.Password()
			if text := cloud.Invalid("gs", err).Error(); len(secret) > 7 && !strings.Contains(u.Host+u.Path+u.RawQuery, secret) && strings.Contains(text, secret) {
				t.Errorf("%q: %s", raw, text)
			}
			return
		}
		if u.User != nil || got.bucket == "" || strings.Contains(got.bucket, ":") {
			t.Errorf("%q is %+v", raw, got)
		}
		if got.options.Endpoint == "" {
			return
		}
		at, err := url.Parse(got.options.Endpoint)
		if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Scheme != "http" && at.Scheme != "https" {
			t.Errorf("%q goes to %q, %v", raw, got.options.Endpoint, err)
		}
	})
}
