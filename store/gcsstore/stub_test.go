package gcsstore_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/gcsstore"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// stub is as much of the JSON API as the driver speaks. It answers over a
// network and, as a RoundTripper, without one.
// The kinds of requests are "put", "begin", "chunk", "get", "look", "list" and "delete".
type stub struct {
	cloudtest.Stub
	mu         sync.Mutex
	objects    map[string]object
	sessions   map[string][]byte
	generation int64
}

type fault = cloudtest.Fault

// says is an answer in place of the service's.
func says(status int, body string) fault {
	return fault{Answers: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}}
}

type object struct {
	body       []byte
	generation int64
	updated    time.Time
}

func newStub() *stub { return &stub{objects: map[string]object{}, sessions: map[string][]byte{}} }

// address serves the stub over a network, and returns the URL of its bucket.
func address(t testing.TB, s *stub) string {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return "gs://bucket?endpoint=" + srv.URL
}

// serve opens a store of the stub's over a network, by its URL.
func serve(t testing.TB, s *stub, params ...string) store.Store {
	t.Helper()
	return cloudtest.Open(t, strings.Join(append([]string{address(t, s)}, params...), "&"))
}

// within opens one without a network.
func within(t testing.TB, s *stub, opts *gcsstore.Options) *gcsstore.Store {
	t.Helper()
	st, err := gcsstore.New(&http.Client{Transport: s}, "bucket", opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

var errReset = errors.New("stub: connection reset")

func (s *stub) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if recover() != nil {
			resp, err = nil, errReset
		}
	}()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	return rec.Result(), nil
}

func (s *stub) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, key := request(r)
	s.Serve(w, r, kind, key, func(w http.ResponseWriter, body []byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.do(w, r, kind, key, body)
	})
}

// request tells what r asks for.
func request(r *http.Request) (kind, key string) {
	_, path, _ := strings.Cut(r.URL.EscapedPath(), "/storage/v1/b/bucket/o")
	key, _ = url.PathUnescape(strings.TrimPrefix(path, "/"))
	q := r.URL.Query()
	switch {
	case q.Get("upload_id") != "":
		return "chunk", q.Get("name")
	case q.Get("uploadType") == "resumable":
		return "begin", q.Get("name")
	case q.Get("uploadType") == "multipart":
		return "put", q.Get("name")
	case r.Method == http.MethodDelete:
		return "delete", key
	case key == "":
		return "list", q.Get("prefix")
	case q.Get("alt") == "media":
		return "get", key
	}
	return "look", key
}

func fail(w http.ResponseWriter, status int, reason, message string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, apiError(status, reason, message))
}

func apiError(status int, reason, message string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"errors":[{"domain":"global","reason":%q,"message":%q}]}}`, status, message, reason, message)
}

func (s *stub) do(w http.ResponseWriter, r *http.Request, kind, key string, body []byte) {
	q := r.URL.Query()
	have, found := s.objects[key]
	if want := q.Get("ifGenerationMatch"); want != "" && want != strconv.FormatInt(have.generation, 10) {
		fail(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
		return
	}
	switch kind {
	case "put":
		s.write(w, key, media(r, body))
	case "begin":
		id := strconv.Itoa(len(s.sessions) + 1)
		s.sessions[id] = nil
		q.Set("upload_id", id)
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path+"?"+q.Encode())
	case "chunk":
		id := q.Get("upload_id")
		s.sessions[id] = append(s.sessions[id], body...)
		if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
			w.Header().Set("X-Http-Status-Code-Override", "308")
			return
		}
		s.write(w, key, s.sessions[id])
	case "list":
		s.list(w, q)
	case "delete", "get", "look":
		if !found {
			fail(w, http.StatusNotFound, "notFound", "No such object: bucket/"+key)
			return
		}
		switch kind {
		case "delete":
			delete(s.objects, key)
			w.WriteHeader(http.StatusNoContent)
		case "look":
			_ = json.NewEncoder(w).Encode(have.attrs(key))
		case "get":
			s.get(w, r, have)
		}
	}
}

func (s *stub) write(w http.ResponseWriter, key string, body []byte) {
	s.generation++
	s.objects[key] = object{body, 1000 + s.generation, time.Now()}
	_ = json.NewEncoder(w).Encode(s.objects[key].attrs(key))
}

func (s *stub) get(w http.ResponseWriter, r *http.Request, have object) {
	if r.URL.Query().Get("ifGenerationNotMatch") == strconv.FormatInt(have.generation, 10) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h := w.Header()
	h.Set("X-Goog-Generation", strconv.FormatInt(have.generation, 10))
	h.Set("X-Goog-Hash", "crc32c="+crc(have.body))
	if len(have.body) == 0 && r.Header.Get("Range") != "" {
		fail(w, http.StatusRequestedRangeNotSatisfiable, "requestedRangeNotSatisfiable", "")
		return
	}
	h.Set("Last-Modified", have.updated.UTC().Format(http.TimeFormat))
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(have.body)))
}

// list answers a page. Its token is the first key of the next page.
func (s *stub) list(w http.ResponseWriter, q url.Values) {
	most, _ := strconv.Atoi(q.Get("maxResults"))
	from, token := max(q.Get("startOffset"), q.Get("pageToken")), ""
	var items []map[string]string
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key < from {
			continue
		}
		if len(items) == most {
			token = key
			break
		}
		items = append(items, s.objects[key].attrs(key))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "nextPageToken": token})
}

func (o object) attrs(key string) map[string]string {
	return map[string]string{
		"name": key, "generation": strconv.FormatInt(o.generation, 10), "size": strconv.Itoa(len(o.body)),
		"crc32c": crc(o.body), "updated": o.updated.UTC().Format(time.RFC3339Nano),
	}
}

func crc(b []byte) string {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// media is the second part of an upload in one request.
func media(r *http.Request, body []byte) []byte {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	parts := multipart.NewReader(strings.NewReader(string(body)), params["boundary"])
	for i := 0; ; i++ {
		p, err := parts.NextPart()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		b, err := io.ReadAll(p)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if i == 1 {
			return b
		}
	}
}
