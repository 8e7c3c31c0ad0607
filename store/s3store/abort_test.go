package s3store_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
)

// What is under way and old enough is ended, page by page, and nothing else.
func TestAbortUploads(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	for i := range 1500 {
		srv.BeginUpload("bucket", fmt.Sprintf("file/%d x+y", i/2), 2*time.Hour) // two for each key
	}
	srv.BeginUpload("bucket", "file/young", time.Minute)
	srv.BeginUpload("bucket", "files/1", 48*time.Hour)
	put(t, st, "file/0 x+y", "complete", store.Condition{})
	old := func(info store.Info) bool {
		if !strings.HasPrefix(info.Key, "file/") || info.Size != 0 || info.Version != "" {
			t.Errorf("asked of %+v", info)
		}
		return info.Date.Sub(info.LastModified) > time.Hour
	}
	n, err := st.(store.UploadAborter).AbortUploads(t.Context(), "file/", old)
	if n != 1500 || err != nil || srv.Uploads() != 2 {
		t.Errorf("%d were ended, %v; %d are left", n, err, srv.Uploads())
	}
	if got := srv.Counts().Of(s3stub.ListMultipartUploads); got != 2 {
		t.Errorf("%d listings", got)
	}
	if body, _ := get(t, st, "file/0 x+y", nil); body != "complete" {
		t.Errorf("what was complete is now %q", body)
	}
	if n, err := st.(store.UploadAborter).AbortUploads(t.Context(), "file/", old); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}

// That an upload has ended meanwhile is no failure; what is one says of what.
func TestAbortUploadsFails(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	srv.BeginUpload("bucket", "file/a", 0)
	srv.BeginUpload("bucket", "file/b", 0)
	all := func(store.Info) bool { return true }
	for _, c := range []struct {
		op     s3stub.Op
		status int
		code   string
		want   error
		n      int
	}{
		{s3stub.ListMultipartUploads, 501, "NotImplemented", store.ErrUnsupported, 0},
		{s3stub.ListMultipartUploads, 403, "AccessDenied", store.ErrDenied, 0},
		{s3stub.AbortMultipartUpload, 403, "AccessDenied", store.ErrDenied, 0},
		{s3stub.AbortMultipartUpload, 404, "NoSuchUpload", nil, 2},
	} {
		srv.SetFault(s3stub.Every(c.op, s3stub.Fault{Status: c.status, Code: c.code}))
		n, err := st.(store.UploadAborter).AbortUploads(t.Context(), "file/", all)
		if n != c.n || !errors.Is(err, c.want) {
			t.Errorf("%s answers %s: %d, %v", c.op, c.code, n, err)
		}
		if err != nil && asError(t, err).Op != "abort" {
			t.Errorf("%s answers %s: %v", c.op, c.code, err)
		}
	}
	srv.SetFault(nil)
	if _, err := st.(store.UploadAborter).AbortUploads(t.Context(), "file", all); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a prefix that is none: %v", err)
	}
	if n, err := st.(store.UploadAborter).AbortUploads(t.Context(), "file/", all); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// A store that lists the same uploads again and again, each time with other markers, ends in an error.
func TestAbortUploadsNeverEnds(t *testing.T) {
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		fmt.Fprintf(w, "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k%d</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>"+
			"<Upload><Key>tmp/k</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>", n)
	}))
	t.Cleanup(srv.Close)
	st, err := store.Open(t.Context(), "s3://box?region=x&endpoint="+srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	aborter, _ := store.As[store.UploadAborter](st)
	if _, err := aborter.AbortUploads(t.Context(), "tmp/", func(store.Info) bool { return false }); err == nil || n > 10 {
		t.Errorf("%v after %d requests", err, n)
	}
}
