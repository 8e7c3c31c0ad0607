package gcsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// request is what the transport learns about one call to the SDK.
type request struct {
	many  bool      // the call may send several requests
	date  time.Time // of the last answer, by the store's clock
	sent  bool
	broke error // why the reading of an object ended early
}

type requestKey struct{}

// with returns the context for one call to the SDK.
func (r *request) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

var errSecond = errors.New("gcsstore: a call that may send one request was about to send a second")

// transport sees every request that the SDK sends. A call sends its requests one after
// another.
type transport struct{ base http.RoundTripper }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	// guard:cancelled-upload. No request is sent after its call was cancelled.
	if err := r.Context().Err(); err != nil {
		return nil, refuse(r, err)
	}
	call, known := r.Context().Value(requestKey{}).(*request)
	if !known {
		call = &request{}
	}
	// guard:one-attempt. A call sends one request, whatever the SDK does.
	if call.sent && !call.many {
		return nil, refuse(r, cmp.Or(call.broke, errSecond))
	}
	call.sent = true
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		call.date = date
	}
	body := &answer{ReadCloser: resp.Body, r: resp.Body, call: call}
	// guard:bounded-answer. Every answer but an object is cut at 8 MiB.
	if object := resp.StatusCode/100 == 2 && r.URL.Query().Get("alt") == "media"; !object {
		body.r = &sparse{r: io.LimitReader(resp.Body, cloud.MaxAnswer), left: maxParts}
	}
	resp.Body = body
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

// refuse ends a request that is not sent: its body must be closed all the same.
func refuse(r *http.Request, err error) error {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return err
}

// answer is a body that records why reading it ended early.
type answer struct {
	io.ReadCloser
	r    io.Reader
	call *request
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if err != nil && err != io.EOF {
		a.call.broke = err
	}
	return n, err
}
