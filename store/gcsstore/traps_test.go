package gcsstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/gcsstore"
	"github.com/fencepost/fencepost/store/internal/cloud"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// Google Cloud Storage takes about one write a second for one name. The
// heartbeat swaps one name: by default it keeps the distance that the driver
// asks for, however short the lease, and a shorter one is refused.
//
// guard:min-rewrite. A leader on such a store sends no faster heartbeats, and refuses settings that
// need them. Without this trait: an operator gives A a validity of one second; A sends a heartbeat
// every 400 ms; the store answers most of them with 429; A's term expires, although A and the store are
// well.
func TestT34_HeartbeatKeepsTheLeastInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gcs := newStub()
		st := within(t, gcs, nil)
		if got := st.Traits().MinRewrite; got != time.Second {
			t.Fatalf("MinRewrite is %v, want 1 s", got)
		}
		_, err := leader.New(st, "lock", &leader.Options{Validity: 2 * time.Second, Renew: 999 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "gs://bucket") {
			t.Errorf("a heartbeat each 999 ms: got %v, want an error that names the store", err)
		}
		e, err := leader.New(st, "lock", &leader.Options{Validity: 2 * time.Second, Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := context.Cause(term.Context()); err != nil {
			t.Fatalf("the term ended: %v", err)
		}
		beats := slices.DeleteFunc(gcs.Requests(), func(r cloudtest.Request) bool { return r.Kind != "put" || !strings.HasPrefix(r.Key, "lock/") })
		// The first two make the lock: created, and swapped once (step 5).
		if len(beats) < 40 {
			t.Fatalf("%d heartbeats in a minute", len(beats))
		}
		for i := 2; i < len(beats); i++ {
			if d := beats[i].At.Sub(beats[i-1].At); d < time.Second {
				t.Errorf("write %d of %s came %v after the one before", i, beats[i].Key, d)
			}
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

var size = map[string]int{"small": 1 << 10, "larger than the SDK's chunk": 17 << 20}

// A Put is one request of its own kind, however large it is and whatever
// happens to it. The SDK's default (chunks of 16 MiB, retries of conditional
// writes) sends it again, and shows the 412 that one's own first attempt caused.
//
// guard:single-shot. Without this setting the SDK allocates 16 MiB for each Put, and sends a longer
// body in chunks: A puts an object of 17 MiB; the answer to the last chunk is lost; the SDK sends that
// chunk again, and gets 412 because of its first attempt; A takes its own object for a successor's.
func TestT35_PutIsOneRequest(t *testing.T) {
	faults := map[string]fault{
		"none": {}, "lost before": {Drop: true}, "lost after": {Lost: true},
		"408": says(408, ""), "409": says(409, ""), "429": says(429, ""), "500": says(500, ""), "503": says(503, ""),
	}
	for what, f := range faults {
		for name, n := range size {
			t.Run(what+"/"+name, func(t *testing.T) {
				gcs := newStub()
				st := serve(t, gcs)
				version := store.Version("")
				for _, cond := range []string{"absent", "match", "always"} {
					c := map[string]store.Condition{"absent": store.IfAbsent(), "match": store.IfMatch(version)}[cond]
					gcs.Reset()
					gcs.On("put", 1, f)
					_, err := st.Put(t.Context(), "k", make([]byte, n), &store.PutOptions{If: c})
					if got := gcs.Kinds(); !slices.Equal(got, []string{"put"}) {
						t.Errorf("if %s: requests %v, want one put", cond, got)
					}
					if what == "none" && err != nil || what != "none" && store.OutcomeOf(err) != store.Unknown {
						t.Errorf("if %s: %v is %v", cond, err, store.OutcomeOf(err))
					}
					gcs.Reset()
					info, err := st.Put(t.Context(), "k", []byte("x"), nil)
					if err != nil {
						t.Fatal(err)
					}
					version = info.Version
				}
			})
		}
	}
}

// early answers a request when it has read a little of it, and keeps the rest, as net/http's writing
// goroutine may.
type early struct{ rest io.Reader }

func (e *early) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.ReadFull(r.Body, make([]byte, 10))
	e.rest = r.Body
	return &http.Response{StatusCode: http.StatusForbidden, Request: r, Body: http.NoBody}, nil
}

// The body is its caller's again when Put has returned: see guard:body-taken-back.
func TestBodyIsTakenBack(t *testing.T) {
	e := &early{}
	st, err := gcsstore.New(&http.Client{Transport: e}, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("lent")
	if _, err := st.Put(t.Context(), "k", body, nil); err == nil {
		t.Fatal("403 is a success")
	}
	copy(body, "mine")
	if got, err := io.ReadAll(e.rest); bytes.Contains(got, []byte("mine")) || err == nil {
		t.Errorf("%q was read after Put had returned, %v", got, err)
	}
}

// A download that breaks off is an error, which says what broke it. It is not opened again.
func TestT35_GetIsOneRequest(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	if _, err := st.Put(t.Context(), "k", make([]byte, 100<<10), &store.PutOptions{If: store.IfAbsent()}); err != nil {
		t.Fatal(err)
	}
	gcs.Reset()
	gcs.On("get", 1, fault{Cut: 50 << 10})
	obj, err := st.Get(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Body.Close()
	if n, err := io.Copy(io.Discard, obj.Body); err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if got := gcs.Kinds(); !slices.Equal(got, []string{"get"}) {
		t.Errorf("requests %v, want one get", got)
	}
}

// What becomes of an upload is told by the object, not by the last answer.
//
// guard:own-upload. An upload that has sent its whole body may be applied, whatever the answer. Without
// this check: A and B run from one snapshot of a machine, and draw the same name for a file; B is
// first, and A's upload gets 412; A takes B's object for its own, and A's edit names a file with B's
// bytes.
func TestT35_UploadIsSettledByTheObject(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		fault fault
		there []byte // before the upload
		ok    bool
	}{
		"one request, reply lost":    {kind: "put", fault: fault{Lost: true}, ok: true},
		"one request, never arrived": {kind: "put", fault: fault{Drop: true}},
		// The session is gone because it has ended: by the chunk before the lost reply.
		"last chunk, reply lost, then 410": {kind: "chunk", ok: true},
		"another's object":                 {kind: "none", there: bytes.Repeat([]byte("y"), 16<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			gcs := newStub()
			st := serve(t, gcs, "chunk-size=262144")
			body := bytes.Repeat([]byte("0123456789abcdef"), 1<<10)
			if c.kind == "chunk" {
				body = bytes.Repeat(body, 40) // three chunks
				gone := says(http.StatusGone, "gone")
				gcs.Faults(func(kind string, n int) *fault {
					switch {
					case kind == "chunk" && n == 3:
						return &fault{Lost: true}
					case kind == "chunk" && n > 3:
						return &gone
					}
					return nil
				})
			} else {
				gcs.On(c.kind, 1, c.fault)
			}
			if c.there != nil {
				if _, err := st.Put(t.Context(), "k", c.there, &store.PutOptions{If: store.IfAbsent()}); err != nil {
					t.Fatal(err)
				}
			}
			info, err := st.Upload(t.Context(), "k", bytes.NewReader(body), &store.UploadOptions{Create: true})
			switch {
			case c.ok && (err != nil || info.Size != int64(len(body)) || info.Version == ""):
				t.Errorf("got %v, %v; the object is there", info, err)
			case !c.ok && c.there != nil && store.OutcomeOf(err) != store.Refused:
				t.Errorf("got %v, want a refusal", err)
			case !c.ok && err == nil:
				t.Error("it says that it succeeded")
			}
			if want := c.ok || c.there != nil; slices.Contains(gcs.keys(), "k") != want {
				t.Errorf("the stub holds %v", gcs.keys())
			}
		})
	}
}

// A body that breaks off leaves nothing: no request is sent after the error.
func TestUploadOfBrokenBodyLeavesNothing(t *testing.T) {
	for _, at := range []int{0, 1000, 262144, 300000, 600000} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			gcs := newStub()
			params := []string{}
			if at > 262144 {
				params = append(params, "chunk-size=262144")
			}
			st := serve(t, gcs, params...)
			body := io.MultiReader(bytes.NewReader(make([]byte, at)), errReader{})
			_, err := st.Upload(t.Context(), "k", body, nil)
			if err == nil || !strings.Contains(err.Error(), errReset.Error()) {
				t.Errorf("got %v, want the body's error", err)
			}
			if keys := gcs.keys(); len(keys) != 0 {
				t.Errorf("half a body is an object: %v", keys)
			}
			if kinds := gcs.Kinds(); at < 262144 && len(kinds) != 0 {
				t.Errorf("requests %v", kinds)
			}
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errReset }

// Real servers run the whole suite too: see integration_test.go. It is the last test here, since it
// takes longer than all others.
func TestConformanceOfTheStub(t *testing.T) { cloudtest.Conformance(t, address(t, newStub()), true) }

func TestSmallPages(t *testing.T) { cloudtest.SmallPages(t, serve(t, newStub())) }

// The store gives empty pages for ever, or each page with a key less. The SDK would go on until a page is full.
func TestPagesCutShort(t *testing.T) {
	for name, answer := range map[string]func(n int) string{
		"empty": func(n int) string { return fmt.Sprintf(`{"nextPageToken":"%d"}`, n) },
		"the same": func(n int) string {
			return fmt.Sprintf(`{"items":[{"name":"a","generation":"1"}],"nextPageToken":"%d"}`, n)
		},
	} {
		n := 0
		st, err := gcsstore.New(&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			n++
			w := httptest.NewRecorder()
			_, _ = io.WriteString(w, answer(n))
			return w.Result(), nil
		})}, "bucket", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := cloudtest.ListErr(t, st); !errors.Is(err, cloud.ErrPaging) || store.Permanent(err) || n > 2100 {
			t.Errorf("%s: %v after %d requests", name, err, n)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// guard:upload-in-clear. Without this check: a proxy in front of the service is reached over https and speaks http to it, so the
// service names http in the place of an upload; the second request carries the bearer token and the file in clear.
func TestUploadPlaceInTheClear(t *testing.T) {
	sent := 0
	st, err := gcsstore.New(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if sent++; r.URL.Scheme != "https" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w := httptest.NewRecorder()
		w.Header().Set("Location", "http://storage.googleapis.com/upload/place")
		return w.Result(), nil
	})}, "bucket", &gcsstore.Options{ChunkSize: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Upload(t.Context(), "k", strings.NewReader(strings.Repeat("x", 300<<10)), nil)
	if err == nil || !strings.Contains(err.Error(), "plain http") || sent == 0 {
		t.Errorf("after %d requests: %v", sent, err)
	}
}
