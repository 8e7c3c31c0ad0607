package azurestore_test

import (
	"encoding/xml"
	"fmt"
	"maps"
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
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// stub is as much of Azure's Blob API as the driver speaks.
// The kinds of requests are "put", "block", "commit", "get", "look", "list" and "delete".
type stub struct {
	cloudtest.Stub
	mu     sync.Mutex
	blobs  map[string]blob
	tag    int
	staged map[string][]byte // blocks by their ids
}

type fault = cloudtest.Fault

// says is an answer in place of the service's.
func says(status int, code string) fault {
	return fault{Answers: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		fail(w, status, code)
	}}
}

type blob struct {
	body []byte
	etag string
	at   time.Time
	mark string
}

func newStub() *stub { return &stub{blobs: map[string]blob{}, staged: map[string][]byte{}} }

// address serves the stub over a network, and returns the URL of its container.
func address(t testing.TB, s *stub) string {
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return "az://box?anonymous=true&endpoint=" + srv.URL
}

// serve opens a store of the stub's.
func serve(t testing.TB, s *stub, params ...string) store.Store {
	t.Helper()
	return cloudtest.Open(t, strings.Join(append([]string{address(t, s)}, params...), "&"))
}

func (s *stub) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.blobs))
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/box"), "/")
	comp := r.URL.Query().Get("comp")
	kind := map[string]string{
		"PUT": "put", "PUT block": "block", "PUT blocklist": "commit",
		"GET": "get", "HEAD": "look", "GET list": "list", "DELETE": "delete",
	}[strings.TrimSpace(r.Method+" "+comp)]
	s.Serve(w, r, kind, key, func(w http.ResponseWriter, body []byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.do(w, r, kind, key, body)
	})
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	if code != "" {
		w.Header().Set("X-Ms-Error-Code", code)
	}
	w.WriteHeader(status)
	if status != http.StatusNotModified {
		fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>It is said: %s.\nRequestId:1</Message></Error>", code, code)
	}
}

func (s *stub) do(w http.ResponseWriter, r *http.Request, kind, key string, body []byte) {
	have, found := s.blobs[key]
	writes := kind == "put" || kind == "commit"
	switch want := r.Header.Get("If-Match"); {
	case writes && r.Header.Get("If-None-Match") == "*" && found:
		fail(w, http.StatusConflict, "BlobAlreadyExists")
		return
	case writes && want != "" && want != have.etag:
		fail(w, http.StatusPreconditionFailed, "ConditionNotMet")
		return
	case !writes && kind != "list" && kind != "block" && !found:
		fail(w, http.StatusNotFound, "BlobNotFound")
		return
	}
	switch kind {
	case "put":
		s.write(w, r, key, body)
	case "block":
		s.staged[r.URL.Query().Get("blockid")] = body
		w.WriteHeader(http.StatusCreated)
	case "commit":
		var list struct{ Latest []string }
		if err := xml.Unmarshal(body, &list); err != nil {
			fail(w, http.StatusBadRequest, "InvalidXmlDocument")
			return
		}
		var all []byte
		for _, id := range list.Latest {
			all = append(all, s.staged[id]...)
		}
		s.write(w, r, key, all)
	case "get", "look":
		if r.Header.Get("If-None-Match") == have.etag {
			fail(w, http.StatusNotModified, "ConditionNotMet")
			return
		}
		w.Header().Set("Etag", have.etag)
		w.Header().Set("X-Ms-Meta-Fencepostupload", have.mark)
		if rng := r.Header.Get("X-Ms-Range"); rng != "" {
			r.Header.Set("Range", rng)
		}
		r.Header.Del("If-None-Match")
		http.ServeContent(w, r, "", have.at, strings.NewReader(string(have.body)))
	case "delete":
		delete(s.blobs, key)
		w.WriteHeader(http.StatusAccepted)
	case "list":
		s.list(w, r.URL.Query())
	}
}

func (s *stub) write(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	s.tag++
	s.blobs[key] = blob{body, fmt.Sprintf(`"0x8D%d"`, s.tag), time.Now(), r.Header.Get("X-Ms-Meta-Fencepostupload")}
	w.Header().Set("Etag", s.blobs[key].etag)
	w.Header().Set("Last-Modified", s.blobs[key].at.UTC().Format(http.TimeFormat))
	w.WriteHeader(http.StatusCreated)
}

// list answers a page, whose marker is the first key of the next page. It leaves the quotes
// of ETags out, as Azure does.
func (s *stub) list(w http.ResponseWriter, q url.Values) {
	most, _ := strconv.Atoi(q.Get("maxresults"))
	n, next := 0, ""
	fmt.Fprint(w, `<?xml version="1.0"?><EnumerationResults ContainerName="box"><Blobs>`)
	for _, key := range slices.Sorted(maps.Keys(s.blobs)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key < q.Get("marker") {
			continue
		}
		if n++; n > most {
			next = escaped(key)
			break
		}
		b := s.blobs[key]
		what := ""
		if strings.HasPrefix(key, "directory") {
			what = "<ResourceType>directory</ResourceType>"
		}
		fmt.Fprintf(w, `<Blob><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified><Etag>%s</Etag><Content-Length>%d</Content-Length>%s</Properties></Blob>`,
			escaped(key), b.at.UTC().Format(http.TimeFormat), strings.Trim(b.etag, `"`), len(b.body), what)
	}
	fmt.Fprintf(w, `</Blobs><NextMarker>%s</NextMarker></EnumerationResults>`, next)
}

func escaped(key string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(key)) // never fails
	return b.String()
}
