package httpgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost/fence"
)

const (
	// Header carries the epoch of a request, in decimal digits.
	Header = "Fencepost-Epoch"
	// FencedBy carries, in the answer 412 to a zombie, the epoch that has fenced it.
	FencedBy = "Fencepost-Fenced-By"
)

type epochKey struct{}

// Epoch returns the epoch of a request that has passed [Handler]; 0 if it carries none.
func Epoch(ctx context.Context) fence.Epoch {
	e, _ := ctx.Value(epochKey{}).(fence.Epoch)
	return e
}

// Handler passes requests through a gate. Requests of the highest epoch, and of a higher one, reach
// next; it runs inside the gate, so no request of an earlier epoch runs after one of a later
// epoch has begun. A zombie's request gets 412, one without an epoch 428, and one whose epoch is
// no number 400. GET, HEAD and OPTIONS pass without an epoch, as they change nothing.
func Handler(gate *fence.Gate, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.Header.Get(Header)
		if text == "" {
			switch r.Method {
			case http.MethodGet, http.MethodHead, http.MethodOptions:
				next.ServeHTTP(w, r)
			default:
				http.Error(w, "this service is fenced: send your epoch in the header "+Header, http.StatusPreconditionRequired)
			}
			return
		}
		epoch, err := strconv.ParseUint(text, 10, 64)
		if err != nil || epoch == 0 || len(r.Header.Values(Header)) > 1 {
			http.Error(w, Header+" must be one number from 1 on", http.StatusBadRequest)
			return
		}
		// guard:http-inside. A request is served inside the gate, not after a check of the gate: while
		// it is served, no request of a later epoch begins.
		//
		//mutant:replace gate.Do(fence.Epoch(epoch), func() error { => func(f func() error) error { if err := gate.Check(fence.Epoch(epoch)); err != nil { return err }; return f() }(func() error {
		err = gate.Do(fence.Epoch(epoch), func() error {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), epochKey{}, fence.Epoch(epoch))))
			return nil
		})
		if fenced, ok := errors.AsType[*fence.FencedError](err); ok {
			w.Header().Set(FencedBy, strconv.FormatUint(uint64(fenced.By), 10))
			http.Error(w, fenced.Error(), http.StatusPreconditionFailed)
		}
	})
}

// Transport sends the epoch of a token with each request, over base or the default transport. If
// the service answers that a later epoch has fenced this one, the error is a fence.FencedError,
// and the request had no effect.
func Transport(token fence.Token, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{token.Epoch(), base}
}

type transport struct {
	epoch fence.Epoch
	base  http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(Header, strconv.FormatUint(uint64(t.epoch), 10))
	answer, err := t.base.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusPreconditionFailed {
		return answer, err
	}
	by, err := strconv.ParseUint(answer.Header.Get(FencedBy), 10, 64)
	if err != nil {
		return answer, nil //nolint:nilerr // a 412 of something else
	}
	_ = answer.Body.Close()
	return nil, &fence.FencedError{Epoch: t.epoch, By: fence.Epoch(by), Err: fmt.Errorf("%s %s: %s", r.Method, r.URL.Redacted(), answer.Status)}
}
