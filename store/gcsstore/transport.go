package gcsstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// maxAnswer bounds every answer but an object: a page of a listing with keys of
// full length, each letter escaped, has some 6 MiB.
const maxAnswer = 8 << 20

// request is what this package knows of one call to the SDK, beside its result.
type request struct {
	many  bool      // it may be several requests
	date  time.Time // of the last answer, by the store's clock
	sent  bool
	broke error // what ended the reading of an object
}

type requestKey struct{}

// with makes ctx that of a call to the SDK.
func (r *request) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

var errSecond = errors.New("gcsstore: a call that may be one request only was about to send another")

// transport sees every request that the SDK sends. Those of one call come one
// after another.
type transport struct{ base http.RoundTripper }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	// guard:cancelled-upload. An upload whose body broke off is cancelled and then
	// closed, and the closing looks like the body's end to the SDK: its last
	// request must not get out, or half a body would become an object.
	if err := r.Context().Err(); err != nil {
		return nil, refuse(r, err)
	}
	call, known := r.Context().Value(requestKey{}).(*request)
	if !known {
		call = &request{}
	}
	// guard:one-attempt. The SDK's policy is set not to retry, and its single-shot
	// upload cannot; this holds whatever it does, now or later. (It does open a
	// broken download again.)
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
	// guard:bounded-answer. What is no object is read into memory by the SDK.
	if object := resp.StatusCode/100 == 2 && r.URL.Query().Get("alt") == "media"; !object {
		body.r = io.LimitReader(resp.Body, maxAnswer)
	}
	resp.Body = body
	return resp, nil
}

// refuse does not send a request. Its body has to be closed all the same.
func refuse(r *http.Request, err error) error {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return err
}

// answer remembers what ended the reading of it.
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
