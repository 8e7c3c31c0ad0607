package azurestore

import (
	"net/url"
	"testing"

	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

func FuzzURL(f *testing.F) {
	cloudtest.FuzzURL(f, "az", []string{
		"az://box/prefix?account=acc",
		"az://box?endpoint=http://127.0.0.1:10000/devstoreaccount1&anonymous=true",
		"az://AK:secret-secret@box/x",
		"az://box.blob.core.windows.net/x",
		"az:box",
		"az://box?account=a/b",
		"az://box?endpoint=http://a:secret-secret@h",
		"az://box?block-size=1",
		"az://box?%zz",
	}, func(u *url.URL) (bucket, endpoint string, err error) {
		got, err := parse(u)
		if err != nil {
			return "", "", err
		}
		return got.container, got.endpoint, nil
	})
}
