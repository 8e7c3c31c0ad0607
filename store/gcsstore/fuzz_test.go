package gcsstore

import (
	"net/url"
	"testing"

	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

func FuzzURL(f *testing.F) {
	cloudtest.FuzzURL(f, "gs", []string{
		"gs://bucket/prefix",
		"gs://bucket?endpoint=http://127.0.0.1:4443",
		"gs://AK:secret-secret@bucket/x",
		"gs://bucket:80/x",
		"gs:b",
		"gs://b?endpoint=https://h/path",
		"gs://b?endpoint=http://a:secret-secret@h",
		"gs://b?part-size=x",
		"gs://b?%zz",
	}, func(u *url.URL) (bucket, endpoint string, err error) {
		got, err := parse(u)
		if err != nil {
			return "", "", err
		}
		return got.bucket, got.options.Endpoint, nil
	})
}
