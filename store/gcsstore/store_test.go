package gcsstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/gcsstore"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// A version that is no generation is none of this store's: refused, and not sent
// as a condition that would always hold.
func TestVersionsOfOthers(t *testing.T) {
	gcs := newStub()
	cloudtest.OthersVersions(t, serve(t, gcs), &gcs.Stub, "", "0", "-1", "+5", "05", "1e3", "0x1", "abc", "99999999999999999999")
}

// A whole object that arrives damaged is an error at its end. A part of one has no sum.
func TestDamagedDownload(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	if _, err := st.Put(t.Context(), "k", []byte("body"), nil); err != nil {
		t.Fatal(err)
	}
	gcs.On("get", 0, fault{Answers: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Goog-Generation", "1001")
		w.Header().Set("X-Goog-Hash", "crc32c="+crc([]byte("body"))+",md5=x")
		_, _ = io.WriteString(w, "bodY")
	}})
	obj, err := st.Get(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(obj.Body); err == nil || !strings.Contains(err.Error(), "CRC-32C") {
		t.Errorf("read %q, %v", b, err)
	}
	// The server ignores the range of this one.
	if _, err := st.Get(t.Context(), "k", &store.GetOptions{Offset: 2}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a range that is ignored: %v", err)
	}
}

// A server that answers without end does not fill the memory.
//
// guard:bounded-answer. Without this limit: a broken server, or a proxy before it, answers a listing
// with an endless body; the SDK reads it into memory until the process is killed.
func TestAnswersAreBounded(t *testing.T) {
	gcs := newStub()
	cloudtest.AnswersAreBounded(t, serve(t, gcs), &gcs.Stub, `{"kind":"`, "put", "list")
}

// A short answer that unpacks to gigabytes does not fill the memory either, and a null is no object.
//
// guard:sparse-answer. Without this limit: a broken server answers a listing with 8 MiB of empty objects; the SDK
// makes 1,400 bytes of every three; the process takes 4 GB, and is killed.
func TestAnswersAreSparse(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	for _, body := range []string{`{"items":[`, `{"prefixes":[`, `{"items":[{"acl":[`, `{"items":[{"name":"\"{","metadata":[`} {
		body := []byte(body + strings.Repeat("{},", 1<<17))
		if bytes.Contains(body, []byte("prefixes")) {
			body = bytes.ReplaceAll(body, []byte("{}"), []byte(`""`))
		}
		gcs.On("list", 0, says(http.StatusOK, string(body)))
		var err error
		test.Affords(t, len(body), 128, 16<<20, func() { err = cloudtest.ListErr(t, st) })
		if err == nil || !strings.Contains(err.Error(), "parts") {
			t.Errorf("%.30s: %v", body, err)
		}
	}
	// Braces in names are no parts.
	names := `{"items":[null` + strings.Repeat(`,{"name":"\"`+strings.Repeat(`{[,`, 150)+`"}`, 999) + `]}`
	gcs.On("list", 0, says(http.StatusOK, names))
	n := 0
	for _, err := range st.List(t.Context(), "", nil) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 999 {
		t.Errorf("%d objects", n)
	}
}

// A body whose request was refused early or abandoned is its caller's again: the
// race detector watches.
func TestBodyIsNotKept(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	body := make([]byte, 8<<20)
	for i := range 5 {
		gcs.On("put", 0, says(http.StatusPreconditionFailed, ""))
		if _, err := st.Put(t.Context(), "k", body, nil); store.OutcomeOf(err) != store.Refused {
			t.Fatal(err)
		}
		for j := 0; j < len(body); j += 256 {
			body[j] = byte(i)
		}
	}
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		gcs.On("put", 0, fault{Answers: func(_ http.ResponseWriter, r *http.Request) { cancel(); _, _ = io.Copy(io.Discard, r.Body) }})
		_, _ = st.Put(ctx, "k", body, nil)
		cancel()
		clear(body)
	}
}

func TestNoGeneration(t *testing.T) {
	gcs := newStub()
	st := serve(t, gcs)
	gcs.On("put", 0, says(http.StatusOK, `{"name":"k","size":"1"}`))
	if _, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()}); store.OutcomeOf(err) != store.Unknown {
		t.Errorf("Put: %v", err)
	}
	gcs.On("get", 0, says(http.StatusOK, "x"))
	if _, _, err := cloudtest.Get(t, st, "k", nil); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Get: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	for raw, want := range map[string]string{
		"gs://bucket/a/b?endpoint=http://127.0.0.1:1": "gs://bucket/a/b",
		"gs://bucket?anonymous=true":                  "gs://bucket",
	} {
		st, err := store.Open(t.Context(), raw)
		if err != nil || st.Traits().Name != want || !st.Traits().MultiProcess {
			t.Errorf("%s: %v, %v", raw, st, err)
		}
	}
	for raw, want := range map[string]string{
		"gs://":                                     "the bucket is missing",
		"gs://user:secret@bucket":                   "credentials do not belong",
		"gs://user:/secret@bucket":                  "not a host",
		"gs://127.0.0.1:4443/x":                     "a bucket, not a host",
		"gs://bucket?region=eu":                     `unknown parameter "region"; known are anonymous, chunk-size`,
		"gs://bucket?endpoint=http://a:b@h":         "credentials do not belong into the endpoint",
		"gs://bucket?endpoint=http://h/storage/v1/": "a scheme and a host, no more",
		"gs://bucket?anonymous=true&chunk-size=1":   "a multiple of 262144",
		"gs://bucket/a/../b?anonymous=true":         "must not be",
	} {
		_, err := store.Open(t.Context(), raw)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	// Credentials that are not there, with and without an endpoint of one's own.
	for _, raw := range []string{"gs://bucket", "gs://bucket?endpoint=https://storage.example.com"} {
		_, err := store.Open(t.Context(), raw)
		if !errors.Is(err, store.ErrDenied) || !strings.Contains(fmt.Sprint(err), "GOOGLE_APPLICATION_CREDENTIALS") {
			t.Errorf("%s without credentials: %v", raw, err)
		}
	}
	if _, err := gcsstore.New(nil, "bucket", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	if _, err := gcsstore.New(http.DefaultClient, "bucket", &gcsstore.Options{ChunkSize: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("negative ChunkSize: %v", err)
	}
}

// A token never travels in the clear, whatever the environment holds.
//
// guard:no-token-in-clear. Without this rule: an operator mistypes an endpoint with http; the bearer
// token crosses the network in clear; any listener can use the token until it expires.
func TestNoTokenInTheClear(t *testing.T) {
	key := filepath.Join(t.TempDir(), "user.json")
	if err := os.WriteFile(key, []byte(`{"type":"authorized_user","client_id":"i","client_secret":"s","refresh_token":"r"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
	gcs := newStub()
	headers := make(chan http.Header, 1)
	gcs.On("get", 0, fault{Answers: func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header.Clone() }})
	_, _, _ = cloudtest.Get(t, serve(t, gcs), "k", nil)
	select {
	case h := <-headers:
		if h.Get("Authorization") != "" {
			t.Errorf("Authorization: %s", h.Get("Authorization"))
		}
	default:
		t.Error("nothing was sent")
	}
}

func TestEmulatorHost(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", os.DevNull)
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	st, err := store.Open(t.Context(), "gs://bucket")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = cloudtest.Get(t, st, "k", nil)
	if err == nil || !strings.Contains(err.Error(), "nothing answers at http://127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	if store.OutcomeOf(err) != store.Unknown {
		t.Errorf("a refused connection is %v", store.OutcomeOf(err))
	}
}
