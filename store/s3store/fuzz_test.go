package s3store

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
		"s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=a&path-style=true",
		"s3://b?etag=unquoted&part-size=6000000&checksum=crc32&sse=aws:kms&sse-kms-key-id=k&request-payer=requester&expected-bucket-owner=1&profile=p",
		"s3://AK:secret-secret@bucket/x",
		"s3://b:9000/x",
		"s3:b",
		"s3://b?endpoint=http://a:secret-secret@h",
		"s3://b#f",
		"s3://b?region=a&region=b",
		"s3://b?part-size=-1",
		"s3://b?%zz",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "s3" {
			return
		}
		got, err := parse(u)
		if err != nil {
			secret, _ := u.User.Password()
			if text := cloud.Invalid("s3", err).Error(); len(secret) > 7 && !strings.Contains(u.Host+u.Path+u.RawQuery, secret) && strings.Contains(text, secret) {
				t.Errorf("%q: %s", raw, text)
			}
			return
		}
		if u.User != nil || got.bucket == "" || strings.Contains(got.bucket, ":") {
			t.Errorf("%q is %+v", raw, got)
		}
		if got.endpoint == "" {
			return
		}
		at, err := url.Parse(got.endpoint)
		if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Scheme != "http" && at.Scheme != "https" {
			t.Errorf("%q goes to %q, %v", raw, got.endpoint, err)
		}
	})
}
