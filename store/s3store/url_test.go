package s3store_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/s3store"
)

func TestURLErrors(t *testing.T) {
	const at = "?endpoint=http://127.0.0.1:1"
	for url, want := range map[string]string{
		"s3://":                                     "bucket is missing",
		"s3:///prefix":                              "bucket is missing",
		"s3:bucket/prefix":                          "write s3://bucket/prefix",
		"s3://%zz":                                  "write s3://bucket/prefix",
		"s3://bucket:9000/x":                        "endpoint=http://host:port",
		"s3://bucket:/x":                            "endpoint=http://host:port",
		"s3://AK:" + secret + "@bucket/x":           "AWS_ACCESS_KEY_ID",
		"s3://AK:/" + secret + "@bucket/x":          "not a host",
		"s3://AK:12#" + secret + "@bucket":          "not a URL",
		"s3://AK:12?" + secret + "@bucket":          "not a host",
		"s3://AK:x@y/" + secret + "@bucket":         "AWS_ACCESS_KEY_ID",
		"s3://b" + at + "&colour=red":               "known are checksum, endpoint, etag, part-size, path-style, profile, region, sse, sse-kms-key-id",
		"s3://b" + at + "&etag=bare":                "quoted or unquoted",
		"s3://b" + at + "&checksum=md5":             "crc32c or none",
		"s3://b" + at + "&sse=rot13":                "AES256",
		"s3://b" + at + "&sse-kms-key-id=k":         "needs the encryption aws:kms",
		"s3://b" + at + "&part-size=1":              "5242880",
		"s3://b" + at + "&part-size=big":            "number of bytes",
		"s3://b?endpoint=http://a:" + secret + "@h": "do not belong into the endpoint",
		"s3://b?endpoint=http://h?region=x":         "write & for ?",
		"s3://b/p":                                  "AWS_REGION",
		"s3://b/a//b" + at:                          "must not be empty",
		"s3://b" + at + "&profile=nobody":           "nobody",
	} {
		_, err := store.Open(t.Context(), url)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an invalid request with %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats the secret: %v", url, err)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	srv := start(t, nil)
	for want, opts := range map[string]*s3store.Options{
		"Checksum is \"md5\"": {Checksum: "md5"},
		"5368709120":          {Checksum: "md5", PartSize: 6 << 30}, // all faults at once
	} {
		if _, err := s3store.New(client(t, srv), "bucket", opts); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if _, err := s3store.New(nil, "bucket", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without a client: got %v", err)
	}
	if _, err := s3store.New(client(t, srv), "", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without a bucket: got %v", err)
	}
}

// Endpoint, region and style: from the URL, else from the environment.
func TestEnvironment(t *testing.T) {
	srv := start(t, nil)
	for name, env := range map[string]string{"AWS_ENDPOINT_URL": "s3://bucket/p", "AWS_ENDPOINT_URL_S3": "s3://bucket/p?region=eu-west-1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, srv.URL())
			auth := headers(srv, s3stub.PutObject, "Authorization")
			st, err := store.Open(t.Context(), env)
			if err != nil {
				t.Fatal(err)
			}
			put(t, st, "k", "v", store.Condition{})
			region := "/us-east-1/"
			if strings.Contains(env, "region") {
				region = "/eu-west-1/"
			}
			if a := auth(); len(a) != 1 || !strings.Contains(a[0], region) || !strings.Contains(a[0], "AKIDTEST") {
				t.Errorf("signed with %q, want %s", a, region)
			}
			if _, found := srv.Object("bucket", "p/k"); !found {
				t.Error("the object is not under the URL's prefix")
			}
			if got := st.Traits(); got.Name != "s3://bucket/p" || !got.MultiProcess {
				t.Errorf("traits %+v", got)
			}
		})
	}
	t.Run("bad", func(t *testing.T) {
		t.Setenv("AWS_ENDPOINT_URL", "localhost:9000")
		if _, err := store.Open(t.Context(), "s3://bucket"); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL") {
			t.Errorf("got %v", err)
		}
	})
}

func TestPathStyle(t *testing.T) {
	srv := start(t, nil)
	// For an address the SDK uses path style anyway.
	url := strings.Replace(srv.StoreURL(), "127.0.0.1", "localhost", 1)
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	put(t, st, "k", "v", store.IfAbsent())
	if st, err = store.Open(t.Context(), url+"&path-style=false"); err != nil {
		t.Fatal(err)
	}
	// Where *.localhost has an address, the stub takes the key for a bucket.
	if obj, err := st.Get(t.Context(), "k", nil); err == nil {
		t.Errorf("found %+v under the bucket's own host name", obj.Info)
	}
}

func TestNoCredentials(t *testing.T) {
	srv := start(t, nil)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	st := open(t, srv)
	for _, op := range []s3stub.Op{s3stub.PutObject, s3stub.GetObject, s3stub.ListObjectsV2, s3stub.DeleteObject} {
		err := do(t.Context(), st, op, store.IfAbsent())
		if e := asError(t, err); !errors.Is(err, store.ErrDenied) || !strings.Contains(e.Hint, "AWS_PROFILE") {
			t.Errorf("%s: got %v", op, err)
		}
	}
	if _, err := st.Upload(t.Context(), "k", strings.NewReader("x"), nil); !errors.Is(err, store.ErrDenied) {
		t.Errorf("Upload: got %v", err)
	}
	if n := srv.Counts().Total(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestHeadersOfOptions(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv, "sse=aws:kms", "sse-kms-key-id=alias/k")
	var got http.Header
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault { got = r.HTTP.Header.Clone(); return nil })
	want := func(what string) {
		t.Helper()
		for name, v := range map[string]string{"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "alias/k"} {
			if got.Get(name) != v {
				t.Errorf("%s: %s is %q, want %q", what, name, got.Get(name), v)
			}
		}
	}
	put(t, st, "k", "v", store.Condition{})
	want("put")
	if _, err := st.Upload(t.Context(), "small", strings.NewReader("x"), nil); err != nil {
		t.Fatal(err)
	}
	want("upload")
}

func TestTraitsOfSlowRewriters(t *testing.T) {
	for endpoint, slow := range map[string]bool{
		"https://acc.r2.cloudflarestorage.com": true, "https://storage.googleapis.com": true, "http://127.0.0.1:9000": false,
	} {
		st, err := store.Open(t.Context(), "s3://b?endpoint="+endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Traits().MinRewrite > 0; got != slow {
			t.Errorf("%s: MinRewrite is %v", endpoint, st.Traits().MinRewrite)
		}
	}
}
