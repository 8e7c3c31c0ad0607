package azurestore

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
		"az://box/prefix?account=acc",
		"az://box?endpoint=http://127.0.0.1:10000/devstoreaccount1&anonymous=true",
		"az://AK:secret-secret@box/x",
		"az://box.blob.core.windows.net/x",
		"az:box",
		"az://box?account=a/b",
		"az://box?endpoint=http://a:secret-secret@h",
		"az://box?block-size=1",
		"az://box?%zz",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "az" {
			return
		}
		got, err := parse(u)
		if err != nil {
			secret, _ := u.User.Password()
			if text := cloud.Invalid("az", err).Error(); len(secret) > 7 && !strings.Contains(u.Host+u.Path+u.RawQuery, secret) && strings.Contains(text, secret) {
				t.Errorf("%q: %s", raw, text)
			}
			return
		}
		if u.User != nil || got.container == "" || strings.Contains(got.container, ":") {
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
