package s3store

import (
	"net/url"
	"testing"

	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

func FuzzURL(f *testing.F) {
	cloudtest.FuzzURL(f, "s3", []string{
		"s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=a&path-style=true",
		"s3://b?etag=unquoted&part-size=6000000&checksum=crc32&sse=aws:kms&sse-kms-key-id=k&profile=p",
		"s3://AK:secret-secret@bucket/x",
		"s3://b:9000/x",
		"s3:b",
		"s3://b?endpoint=http://a:secret-secret@h",
		"s3://b#f",
		"s3://b?region=a&region=b",
		"s3://b?part-size=-1",
		"s3://b?%zz",
	}, func(u *url.URL) (bucket, endpoint string, err error) {
		got, err := parse(u)
		if err != nil {
			return "", "", err
		}
		return got.bucket, got.endpoint, nil
	})
}
