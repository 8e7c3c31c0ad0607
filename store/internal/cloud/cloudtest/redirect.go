package cloudtest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// Redirects wants that no request follows a redirect, and that one that passes is no refusal. url makes the URL of a store
// at an endpoint.
func Redirects(t *testing.T, url func(endpoint string) string) {
	for status, want := range map[int]error{301: store.ErrInvalid, 302: nil, 303: nil, 307: nil, 308: store.ErrInvalid} {
		var followed atomic.Int64
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			followed.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}))
		near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.URL+r.URL.Path)
			w.WriteHeader(status)
		}))
		st := Open(t, url(near.URL))
		_, got := st.Get(t.Context(), "k", nil)
		_, put := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
		for op, err := range map[string]error{"get": got, "put": put} {
			e, ok := errors.AsType[*store.Error](err)
			if !ok || e.Status != status || !errors.Is(e.Kind, want) || (want == nil) != (e.Kind == nil) {
				t.Errorf("%d, %s: %v", status, op, err)
			} else if !strings.Contains(e.Hint, other.URL) {
				t.Errorf("%d, %s: the hint is %q", status, op, e.Hint)
			}
		}
		near.Close()
		other.Close()
		if n := followed.Load(); n > 0 {
			t.Errorf("%d: %d requests went to another origin", status, n)
		}
	}
}
