package httpgate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// DefaultMaxBody is the default of Options.MaxBody: 8 MiB.
const DefaultMaxBody = 8 << 20

// Options of a [Handler]. The zero value works, and so does nil.
type Options struct {
	// MaxBody is how many bytes the body of a request that changes something may have, and how many its answer may
	// have. Both are in memory. Default, also for a negative value, [DefaultMaxBody].
	MaxBody int64
}

// Handler passes requests through a gate. Requests of the highest epoch, and of a higher one, reach
// next; it runs inside the gate, so no request of an earlier epoch runs after one of a later
// epoch has begun. A zombie's request gets 412, one without an epoch 428, and one whose epoch is
// no number that an election can have 400. GET, HEAD and OPTIONS change nothing: they pass without an epoch, and
// without the gate; with the epoch of a zombie they get 412 too, and with a later epoch than the gate's they raise nothing.
//
// Nobody's slow line holds the gate. The body is read before, and the answer is sent after that; a body that is too
// large gets 413. So next cannot stream. A request whose client has given up before its turn is not served. Set
// http.Server.ReadTimeout: a client that never ends its request holds its connection and its memory.
func Handler(gate *fence.Gate, next http.Handler, opts *Options) http.Handler {
	limit := int64(DefaultMaxBody)
	if opts != nil && opts.MaxBody > 0 {
		limit = opts.MaxBody
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		text := r.Header.Get(Header)
		switch {
		case text == "" && reads:
			next.ServeHTTP(w, r)
			return
		case text == "":
			http.Error(w, "this service is fenced: send your epoch in the header "+Header, http.StatusPreconditionRequired)
			return
		}
		n, err := strconv.ParseUint(text, 10, 64)
		epoch := fence.Epoch(n)
		if err != nil || epoch == 0 || epoch > fence.MaxEpoch || len(r.Header.Values(Header)) > 1 {
			http.Error(w, fmt.Sprintf("%s must be one number from 1 to %d", Header, fence.MaxEpoch), http.StatusBadRequest)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), epochKey{}, epoch))
		if reads {
			if highest := gate.Highest(); epoch < highest {
				refuse(w, &fence.FencedError{Epoch: epoch, By: highest})
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		// guard:http-body-first. The body is read before the gate, so a sender that stops in its middle holds up nobody.
		//
		//mutant:replace body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit)) => body, err := []byte(nil), error(nil)
		//mutant:replace r.Body = io.NopCloser(bytes.NewReader(body)) => _ = body
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if err != nil {
			status := http.StatusBadRequest
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the body cannot be read: "+err.Error(), status)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		a := answer{header: http.Header{}, status: http.StatusOK, limit: limit}
		// guard:http-inside. A request is served inside the gate, not after a check of the gate.
		//
		//mutant:replace gate.Do(r.Context(), epoch, func() error { => func(f func() error) error { if err := gate.Do(r.Context(), epoch, func() error { return nil }); err != nil { return err }; return f() }(func() error {
		err = gate.Do(r.Context(), epoch, func() error {
			next.ServeHTTP(&a, r)
			return nil
		})
		switch fenced, ok := errors.AsType[*fence.FencedError](err); {
		case ok:
			refuse(w, fenced)
		case err != nil: // the client has given up
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			a.send(w)
		}
	})
}

// refuse answers a zombie.
func refuse(w http.ResponseWriter, err *fence.FencedError) {
	w.Header().Set(FencedBy, strconv.FormatUint(uint64(err.By), 10))
	http.Error(w, err.Error(), http.StatusPreconditionFailed)
}

// answer is kept until the gate is left.
type answer struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
	limit  int64
}

var errTooLarge = errors.New("httpgate: the answer is larger than Options.MaxBody")

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.wrote && status >= 200 { // 1xx only announces
		a.status, a.wrote = status, true
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.wrote = true
	if int64(a.body.Len()+len(b)) > a.limit {
		return 0, errTooLarge
	}
	return a.body.Write(b)
}

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
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
