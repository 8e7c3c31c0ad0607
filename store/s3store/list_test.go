package s3store_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
	"github.com/fencepost/fencepost/store/s3store"
)

func list(t testing.TB, st store.Store, prefix, after string) []string {
	t.Helper()
	var keys []string
	for info, err := range st.List(t.Context(), prefix, &store.ListOptions{StartAfter: after}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	slices.Sort(keys)
	return keys
}

func TestListPages(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	var want []string
	for i := range 2500 {
		want = append(want, fmt.Sprintf("a/%05d", i))
	}
	for _, key := range want {
		srv.Put("bucket", key, nil)
	}
	put(t, st, "b", "", store.Condition{})
	srv.Reset()
	if got := list(t, st, "a/", ""); !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if n := srv.Counts().Total(); n != 3 {
		t.Errorf("%d requests for 2,500 keys, want 3", n)
	}
	srv.Reset()
	if got := list(t, st, "a/", "a/01999"); !slices.Equal(got, want[2000:]) {
		t.Errorf("after 1,999: %d keys, want 500", len(got))
	}
	if n := srv.Counts().Total(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	for range st.List(t.Context(), "a/", nil) {
		break
	}
	// An error in the middle ends the sequence, after what came before it.
	srv.SetFault(s3stub.Nth(s3stub.ListObjectsV2, 2, s3stub.Fault{Status: 503, Code: "SlowDown"}))
	n, failed := 0, error(nil)
	for _, err := range st.List(t.Context(), "a/", nil) {
		if failed != nil {
			t.Fatal("the sequence goes on after an error")
		}
		if failed = err; err == nil {
			n++
		}
	}
	if asError(t, failed).Status != 503 || n != 1000 {
		t.Errorf("%d keys, then %v", n, failed)
	}
}

// S3 Express refuses StartAfter.
func TestT31_DirectoryBucket(t *testing.T) {
	const name = "logs--use1-az4--x-s3"
	srv := start(t, &s3stub.Options{Buckets: []string{name, "bucket"}, RandomETags: true})
	var mu sync.Mutex
	var asked []string
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.HTTP.URL.RawQuery)
		return nil
	})
	c := s3.New(client(t, srv).Options(), func(o *s3.Options) { o.DisableS3ExpressSessionAuth = aws.Bool(true) })
	st, err := s3store.New(c, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	list(t, st, "p/", "p/a")
	list(t, embedded(t, srv, nil), "p/", "p/a")
	if len(asked) != 2 || strings.Contains(asked[0], "start-after") || !strings.Contains(asked[1], "start-after") {
		t.Errorf("asked %q", asked)
	}
}

func TestDelete(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	var keys []string
	for i := range 2100 {
		keys = append(keys, fmt.Sprintf("d/%d & <%d>", i, i))
	}
	for _, key := range keys[:3] {
		put(t, st, key, "", store.Condition{})
	}
	sums := headers(srv, s3stub.DeleteObjects, "Content-Md5")
	srv.Reset()
	if err := st.Delete(t.Context()); err != nil || srv.Counts().Total() != 0 {
		t.Errorf("no keys: %v, %d requests", err, srv.Counts().Total())
	}
	if err := st.Delete(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	if got := list(t, st, "", ""); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	if c := srv.Counts(); c.Of(s3stub.DeleteObjects) != 3 || c.Of(s3stub.DeleteObject) != 0 {
		t.Errorf("requests: %v", c)
	}
	if h := sums(); len(h) != 3 || slices.Contains(h, "") {
		t.Errorf("Content-MD5, which older servers insist on: %q", h)
	}
	if err := st.Delete(t.Context(), "d/never"); err != nil {
		t.Errorf("a missing key: %v", err)
	}
	// Some stores answer 404 for a missing key.
	srv.SetFault(s3stub.Every(s3stub.DeleteObject, s3stub.Fault{Status: 404, Code: "NoSuchKey"}))
	if err := st.Delete(t.Context(), "d/never"); err != nil {
		t.Errorf("a missing key, answered 404: %v", err)
	}
	if err := st.Delete(t.Context(), "ok", "not//ok"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a bad key: %v", err)
	}
}

func TestDeleteWithoutBatches(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	keys := []string{"a", "b", "c"}
	for range 2 {
		for _, key := range keys {
			put(t, st, key, "", store.Condition{})
		}
		srv.SetFault(s3stub.Every(s3stub.DeleteObjects, s3stub.Fault{Status: 501, Code: "NotImplemented"}))
		if err := st.Delete(t.Context(), keys...); err != nil {
			t.Fatal(err)
		}
		if got := list(t, st, "", ""); len(got) != 0 {
			t.Errorf("left: %q", got)
		}
	}
	if c := srv.Counts(); c.Of(s3stub.DeleteObjects) != 1 || c.Of(s3stub.DeleteObject) != 6 {
		t.Errorf("requests: %v; want one batch tried, then remembered", c)
	}
	srv.SetFault(s3stub.Every(s3stub.DeleteObject, s3stub.Fault{Status: 403, Code: "AccessDenied"}))
	if err := st.Delete(t.Context(), keys...); !errors.Is(err, store.ErrDenied) {
		t.Errorf("got %v", err)
	}
}

func TestDeleteErrorsOfKeys(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	for _, key := range []string{"a", "b", "c", "d"} {
		put(t, st, key, "", store.Condition{})
	}
	srv.KeyErrors(map[string]string{"a": "AccessDenied", "b": "InternalError", "c": "NoSuchKey"})
	err := st.Delete(t.Context(), "a", "b", "c", "d")
	failed, many := errors.Unwrap(err).(interface{ Unwrap() []error })
	if !many || len(failed.Unwrap()) != 2 {
		t.Fatalf("got %v", err)
	}
	for _, err := range failed.Unwrap() {
		e := asError(t, err)
		want := map[string]error{"a": store.ErrDenied, "b": nil}[e.Key]
		if e.Op != "delete" || !errors.Is(e.Kind, want) {
			t.Errorf("%s: %v", e.Key, e)
		}
	}
	if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), `delete "a"`) || !strings.Contains(err.Error(), "1 more") {
		t.Errorf("got %v", err)
	}
	srv.KeyErrors(map[string]string{"b": "SlowDown"})
	err = st.Delete(t.Context(), "b", "d")
	if store.Permanent(err) || asError(t, err).Key != "b" {
		t.Errorf("got %v", err)
	}
}

// T12: stores that take a condition on DELETE and delete regardless are known, so
// none is ever sent: what is deleted is what nobody may create again.
func TestT12_DeleteIsUnconditional(t *testing.T) {
	srv := start(t, nil)
	st := embedded(t, srv, nil)
	for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since", "X-Amz-If-Match-Size"} {
		for op, keys := range map[s3stub.Op][]string{s3stub.DeleteObject: {"a"}, s3stub.DeleteObjects: {"a", "b"}} {
			seen := headers(srv, op, name)
			if err := st.Delete(t.Context(), keys...); err != nil {
				t.Fatal(err)
			}
			if h := seen(); len(h) != 1 || h[0] != "" {
				t.Errorf("%v with %s: %q", op, name, h)
			}
		}
	}
}

// A short answer that unpacks to gigabytes does not fill the memory.
func TestAnswersAreSparse(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	for n, whole := range map[int]bool{1000: true, cloud.MaxTags: false} {
		body := `<?xml version="1.0"?><ListBucketResult>` + strings.Repeat("<Contents/>", n) + "</ListBucketResult>"
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		st, err := store.Open(t.Context(), "s3://bucket?endpoint="+srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range st.List(t.Context(), "", nil) {
			err = e
		}
		if (err == nil) != whole {
			t.Errorf("%d objects: %v", n, err)
		}
		srv.Close()
	}
}

func TestSmallPages(t *testing.T) { cloudtest.SmallPages(t, open(t, start(t, nil))) }

// A server that does not say whether there is more, but where it is.
func TestListWithoutIsTruncated(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := "<NextContinuationToken>x</NextContinuationToken>"
		key := "a"
		if r.URL.Query().Get("continuation-token") == "x" {
			next, key = "", "b"
		}
		fmt.Fprintf(w, "<ListBucketResult><Contents><Key>%s</Key></Contents>%s</ListBucketResult>", key, next)
	}))
	t.Cleanup(srv.Close)
	if got := list(t, cloudtest.Open(t, "s3://box?region=x&endpoint="+srv.URL), "", ""); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
}
