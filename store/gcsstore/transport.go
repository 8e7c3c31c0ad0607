package gcsstore

import (
	"cmp"
	"context"
	"errors"
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
	// guard:cancelled-upload. No request is sent after its call was cancelled. Go's http.Transport
	// checks this too, but a caller's own RoundTripper may not. Without this check: the body of an
	// upload fails in the middle; Upload cancels the call, and closes the SDK's writer; the SDK takes
	// that for the end of the body, and sends the last part; the RoundTripper sends it, and half a
	// file becomes an object.
	if err := r.Context().Err(); err != nil {
		return nil, refuse(r, err)
	}
	call, known := r.Context().Value(requestKey{}).(*request)
	if !known {
		call = &request{}
	}
	// guard:one-attempt. A call sends one request, whatever the SDK does. Its policy is set to no
	// retries, but today's SDK reopens a broken download all the same, and a later one may retry more.
	// Without this check: such an SDK sends A's create again after a broken connection; the second
	// request gets 403, because A's credentials have expired; A reports that nothing was written; the
	// first request is applied after all.
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
	// guard:bounded-answer. Every answer but an object is cut at 8 MiB. Without this limit: a broken
	// server, or a proxy before it, answers a listing with an endless body; the SDK reads it into
	// memory until the process is killed.
	if object := resp.StatusCode/100 == 2 && r.URL.Query().Get("alt") == "media"; !object {
		body.r = io.LimitReader(resp.Body, cloud.MaxAnswer)
	}
	resp.Body = body
	return resp, nil
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
