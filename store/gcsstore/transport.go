package gcsstore

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// transport bounds what the SDK reads.
type transport struct {
	base   http.RoundTripper
	secure bool // the endpoint speaks https
}

var errClear = errors.New("gcsstore: the service has named a place for the upload that is reached over plain http, and nothing is sent there")

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	// guard:upload-in-clear. What the service names as the place of a chunked upload gets neither bytes nor the token over plain
	// http, if the endpoint speaks https.
	//
	//mutant:replace t.secure && => false &&
	if t.secure && r.URL.Scheme != "https" {
		return nil, errClear
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// guard:bounded-answer. Every answer but an object is cut at 8 MiB.
	if object := resp.StatusCode/100 == 2 && r.URL.Query().Get("alt") == "media"; !object {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{&sparse{r: io.LimitReader(resp.Body, cloud.MaxAnswer), left: maxParts}, resp.Body}
	}
	return resp, nil
}

// maxParts bounds the objects, lists and members of an answer. A page of a listing has 1,000 objects, of which emulators
// send up to 40 members each.
const maxParts = 100 * cloud.PageSize

// sparse reads JSON up to a number of parts.
type sparse struct {
	r               io.Reader
	left            int
	quoted, escaped bool
}

var errParts = fmt.Errorf("gcsstore: the answer has more than %d parts", maxParts)

func (s *sparse) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for _, c := range p[:n] {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '"':
			s.quoted = !s.quoted
		case s.quoted:
			s.escaped = c == '\\'
		case c == '{', c == '[', c == ',':
			s.left--
		}
	}
	// guard:sparse-answer. Every answer but an object has at most 100,000 parts.
	if s.left < 0 {
		return 0, errParts
	}
	return n, err
}
