package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// What of a URL is wrong is said without repeating what may be a secret.
func TestURL(t *testing.T) {
	scheme := &cloud.Scheme{Name: "xx", Root: "bucket", Hint: "?endpoint=E", Endpoint: "http://h:1", Credentials: "set XX_KEY"}
	type target struct {
		on   bool
		size int64
	}
	known := map[string]cloud.Parameter[target]{
		"on":   func(t *target, v string) (err error) { t.on, err = cloud.Bool(v); return err },
		"size": func(t *target, v string) (err error) { t.size, err = cloud.Bytes(v); return err },
	}
	var got target
	parse := func(raw string) error {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return cloud.Parse(scheme, u, &got, known)
	}
	if err := parse("xx://b/p?on=true&size=7"); err != nil || got != (target{true, 7}) {
		t.Errorf("%+v, %v", got, err)
	}
	for raw, want := range map[string]string{
		"xx:b": "not a URL", "xx://b#secret": "not a URL",
		"xx:///p": "the bucket is missing; write xx://bucket/prefix", "xx://b:1": "not a host; write xx://bucket/prefix?endpoint=E",
		"xx://u:secret@b": "set XX_KEY", "xx://b?on=true&on=true": "twice", "xx://b?on=": "empty",
		"xx://b?no=secret": "known are on, size", "xx://b?size=0": "a number of bytes", "xx://b?on=2": "true or false", "xx://b?%zz": "cannot be read",
	} {
		if err := parse(raw); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	for endpoint, want := range map[string]string{
		"h:1": "http://h:1", "ftp://h": "http://h:1", "http://": "http://h:1", "http://u:secret@h": "set XX_KEY", "http://h?k=secret": "write & for ?",
	} {
		if _, err := scheme.CheckEndpoint(endpoint); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
}

// Only an answer that says so refuses or rejects a write.
func TestKinds(t *testing.T) {
	for status, want := range map[int]store.Outcome{
		400: store.Rejected, 401: store.Rejected, 403: store.Rejected, 404: store.Rejected, 412: store.Refused, 413: store.Rejected,
		501: store.Rejected, 408: store.Unknown, 409: store.Unknown, 429: store.Unknown, 500: store.Unknown, 502: store.Unknown, 503: store.Unknown, 504: store.Unknown,
	} {
		err := &store.Error{Op: "put", Status: status, Kind: cloud.KindOf(status, store.ErrNoBucket)}
		if got := store.OutcomeOf(err); got != want {
			t.Errorf("%d is %v, want %v", status, got, want)
		}
	}
}

func TestUnanswered(t *testing.T) {
	s := &cloud.Service{Endpoint: "http://h:1", Host: "the endpoint", Credentials: "set XX_KEY"}
	login := &cloud.Login{Driver: "xxstore"}
	first := login.Note(errors.New("none"))
	_ = login.Note(nil)
	renewing := login.Note(errors.New("none"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		is   error
		says string
	}{
		{t.Context(), &url.Error{Op: "Put", URL: "http://h:1/?sig=secret", Err: syscall.ECONNREFUSED}, syscall.ECONNREFUSED, "nothing answers at http://h:1"},
		{gone, io.EOF, context.Canceled, "context canceled"},
		{gone, first, context.Canceled, "context canceled"},
		{t.Context(), first, store.ErrDenied, "set XX_KEY"},
		{t.Context(), renewing, renewing, "renewing the credentials"},
	} {
		err := s.Unanswered(c.ctx, &store.Error{Op: "put", Key: "k"}, "", c.err)
		if !errors.Is(err, c.is) || !errors.Is(err, c.err) && !errors.Is(c.is, store.ErrDenied) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v became %v", c.err, err)
		}
		if (store.OutcomeOf(err) == store.Unknown) != !errors.Is(err, store.ErrDenied) {
			t.Errorf("%v has the outcome %v", err, store.OutcomeOf(err))
		}
	}
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "99999999999": 0, "1000000": 24 * time.Hour, "soon": 0,
		date.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second, date.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := cloud.RetryAfter(http.Header{"Retry-After": {v}, "Date": {date.Format(http.TimeFormat)}}); got != want && v != "99999999999" {
			t.Errorf("%q is %v, want %v", v, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	if _, err := cloud.Asked("k", &store.GetOptions{Offset: 1 << 62, Length: 1 << 62}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a range past all numbers: %v", err)
	}
	whole := "0123456789"
	for _, c := range []struct {
		offset, length int64
		sent, answered string // what came, and of what it is said to be
		want           string // or "range" or "wrong"
	}{
		{3, 4, whole[3:7], "bytes 3-6/10", "3456"},
		{3, 0, whole[3:], "bytes 3-9/10", "3456789"},
		{3, 4, whole, "", "3456"},                 // all of it, in spite of the range
		{3, 4, whole[3:], "bytes 3-9/10", "3456"}, // more than was asked for
		{10, 1, "", "", "range"},
		{12, 1, "", "bytes 12-12/10", "range"},
		{3, 4, whole[2:6], "bytes 2-5/10", "wrong"},
		{3, 4, whole[3:7], "bytes 3-6/*", "wrong"},
	} {
		obj := &store.Object{Info: store.Info{Key: "k", Version: "v", Size: int64(len(c.sent))}, Body: io.NopCloser(strings.NewReader(c.sent))}
		if c.answered == "" {
			obj.Size = int64(len(whole))
		}
		o := store.GetOptions{Offset: c.offset, Length: c.length}
		obj, err := cloud.Answered(obj, o, "ETag", "If-None-Match", cloud.Cut(obj, c.answered, o))
		got := "wrong"
		switch {
		case errors.Is(err, store.ErrRange):
			got = "range"
		case err == nil:
			b, _ := io.ReadAll(obj.Body)
			if got = string(b); obj.Size != 10 {
				t.Errorf("%+v: size %d", c, obj.Size)
			}
		}
		if got != c.want {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}

// A listing takes all pages, only what is ours, and does not go on for ever.
func TestList(t *testing.T) {
	pages := map[string][]string{"": {"p/a", "p/b", "q/x"}, "1": {"p/c/", "p/d", "pp/e"}, "2": {"p/0"}}
	next := map[string]string{"": "1", "1": "2"}
	list := func(prefix, after string) (keys []string, err error) {
		read := func(_ context.Context, token string) (page []store.Info, more bool, to string, err error) {
			for _, key := range pages[token] {
				page = append(page, store.Info{Key: key})
			}
			to, more = next[token]
			return page, more, to, nil
		}
		for info, e := range cloud.List(t.Context(), prefix, &store.ListOptions{StartAfter: after}, read) {
			if e != nil {
				return keys, e
			}
			keys = append(keys, info.Key)
		}
		return keys, nil
	}
	if got, err := list("p/", ""); err != nil || !slices.Equal(got, []string{"p/a", "p/b", "p/d", "p/0"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := list("p/", "p/a"); err != nil || !slices.Equal(got, []string{"p/b", "p/d"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := list("p", ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a prefix without a slash: %v", err)
	}
	for _, bad := range []string{"", "1"} {
		next["1"] = bad
		if got, err := list("p/", ""); !errors.Is(err, cloud.ErrPaging) {
			t.Errorf("%q after a page that says %q comes next: %v", got, bad, err)
		}
	}
}

// Each page has a new token, and the listing goes round in circles all the same: an error ends it.
func TestListNeverEnds(t *testing.T) {
	keys := func(names ...string) (page []store.Info) {
		for _, name := range names {
			page = append(page, store.Info{Key: name})
		}
		return page
	}
	for name, page := range map[string]func(n int) []store.Info{
		"the same page":       func(int) []store.Info { return keys("a", "b") },
		"two pages in turns":  func(n int) []store.Info { return [][]store.Info{keys("a"), keys("b")}[n%2] },
		"nothing":             func(int) []store.Info { return nil },
		"nothing and a page":  func(n int) []store.Info { return [][]store.Info{nil, keys("a")}[n%2] },
		"what is not our own": func(int) []store.Info { return keys("x/1") },
	} {
		n := 0
		var err error
		for _, e := range cloud.List(t.Context(), "", nil, func(context.Context, string) ([]store.Info, bool, string, error) {
			n++
			return page(n), true, fmt.Sprint(n), nil
		}) {
			err = e
		}
		if err == nil || n > 1100 {
			t.Errorf("%s: %v after %d pages", name, err, n)
		}
	}
	// Empty pages are no error by themselves, where there are pages between them.
	n := 0
	for _, err := range cloud.List(t.Context(), "", nil, func(context.Context, string) ([]store.Info, bool, string, error) {
		n++
		return [][]store.Info{nil, keys(fmt.Sprint("k", n))}[n%2], n < 5000, fmt.Sprint(n), nil
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDelete(t *testing.T) {
	broken := errors.New("broken")
	for want, failing := range map[error]error{nil: &store.Error{Kind: store.ErrNotFound}, broken: broken} {
		err := cloud.Delete(t.Context(), []string{"a", "b", "c"}, func(_ context.Context, key string) error {
			if key == "b" {
				return fmt.Errorf("delete %s: %w", key, failing)
			}
			return nil
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	sent := false
	err := cloud.Delete(t.Context(), []string{"a", "../b"}, func(context.Context, string) error { sent = true; return nil })
	if !errors.Is(err, store.ErrInvalid) || sent {
		t.Errorf("a bad key: %v, something was sent: %t", err, sent)
	}
}
