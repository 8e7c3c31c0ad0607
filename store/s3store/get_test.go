package s3store_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
)

func TestGetInfo(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	written := put(t, st, "k", "0123456789", store.IfAbsent())
	if written.Date.IsZero() {
		t.Error("PUT: no Date")
	}
	srv.Age("bucket", "k", time.Hour)
	for name, opts := range map[string]*store.GetOptions{"": nil, "bytes=3-6": {Offset: 3, Length: 4}, "bytes=7-": {Offset: 7}} {
		asked := headers(srv, s3stub.GetObject, "Range")
		_, info := get(t, st, "k", opts)
		if h := asked(); len(h) != 1 || h[0] != name {
			t.Errorf("asked for range %q, want %q", h, name)
		}
		age := info.Date.Sub(info.LastModified)
		if info.Key != "k" || info.Size != 10 || info.Version != written.Version || age < time.Hour-2*time.Second || age > time.Hour+time.Minute {
			t.Errorf("%s: %+v", name, info)
		}
	}
	for info, err := range st.List(t.Context(), "", nil) {
		if age := info.Date.Sub(info.LastModified); err != nil || info.Size != 10 || age < time.Hour-2*time.Second || age > time.Hour+time.Minute {
			t.Errorf("listed: %+v, %v", info, err)
		}
	}
}

// What a store claims about a range is checked.
func TestBrokenAnswersToGet(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	put(t, st, "k", "0123456789", store.IfAbsent())
	for _, claim := range []string{"bytes 0-3/10", "bytes 2-5/*", "bytes 2-5/-1", "nonsense", "bytes 2-5", "/", "bytes */10"} {
		srv.SetFault(s3stub.Every(s3stub.GetObject, s3stub.Fault{Edit: func(h http.Header) { h.Set("Content-Range", claim) }}))
		_, err := st.Get(t.Context(), "k", &store.GetOptions{Offset: 2, Length: 4})
		if e := asError(t, err); e.Kind != nil || e.Op != "get" || e.Key != "k" || !strings.Contains(err.Error(), claim) {
			t.Errorf("%q: got %v", claim, err)
		}
	}
	for name, v := range map[string]string{"Date": "yesterday", "Last-Modified": "long ago"} {
		srv.SetFault(s3stub.Every(s3stub.GetObject, s3stub.Fault{Edit: func(h http.Header) { h.Set(name, v) }}))
		obj, err := st.Get(t.Context(), "k", nil)
		if err != nil {
			asError(t, err)
			continue
		}
		obj.Body.Close()
		if name == "Date" && !obj.Date.IsZero() {
			t.Errorf("%s %q became %v", name, v, obj.Date)
		}
	}
}

// A store that ignores the condition: the same answer, only dearer.
func TestIgnoredIfNoneMatch(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	info := put(t, st, "k", "x", store.IfAbsent())
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault { r.HTTP.Header.Del("If-None-Match"); return nil })
	if _, err := st.Get(t.Context(), "k", &store.GetOptions{IfNoneMatch: info.Version}); !errors.Is(err, store.ErrNotModified) {
		t.Errorf("ignored condition: got %v", err)
	}
}
