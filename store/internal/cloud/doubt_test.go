package cloud_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// stopped is a clock that a test sets.
type stopped struct {
	clock.Clock
	now atomic.Int64
}

func (s *stopped) Now() clock.Instant      { return clock.Instant(s.now.Load()) }
func (s *stopped) advance(d time.Duration) { s.now.Add(int64(d)) }

func newStopped() *stopped {
	s := &stopped{Clock: clock.System()}
	s.now.Store(int64(time.Hour))
	return s
}

// answers sends a request that is answered so.
func answers(t *testing.T, d *cloud.Doubt, status int) {
	t.Helper()
	rt := d.Over(transport(func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.WriteHeader(status)
		return w.Result(), nil
	}))
	resp, err := rt.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Credentials that the store has taken may be taken again in a moment, but not for ever. Of those that it has never taken, only others are tried.
func TestDoubt(t *testing.T) {
	others := false
	c := newStopped()
	d := &cloud.Doubt{Clock: c, Look: func(context.Context) bool { return others }}
	passes := func(want bool, what string) {
		t.Helper()
		if got := d.Passes(t.Context()); got != want {
			t.Errorf("%s: %t", what, got)
		}
	}
	passes(false, "never taken")
	answers(t, d, 403)
	answers(t, d, 401)
	answers(t, d, 307)
	answers(t, d, 503)
	passes(false, "still never taken")
	others = true
	passes(true, "others are there")
	others = false
	passes(true, "they were found by a request that failed at the same time")
	c.advance(11 * time.Second)
	passes(false, "they are refused, too")

	c.advance(time.Hour)
	answers(t, d, 404)
	for range 6 {
		passes(true, "taken before")
		c.advance(11 * time.Second)
	}
	passes(false, "refused for more than a minute")
	others = true
	passes(false, "others each time, none of which the store takes")
	c.advance(time.Hour)
	passes(true, "refused after an hour in which all was well")
	if (*cloud.Doubt)(nil).Passes(t.Context()) {
		t.Error("a client that is not ours")
	}
}

// Whoever waits while another one looks waits no longer than for its own request.
func TestDoubtWhileAnotherLooks(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d := &cloud.Doubt{Clock: newStopped(), Look: func(context.Context) bool {
		once.Do(func() { close(begun) })
		<-end
		return true
	}}
	var wg sync.WaitGroup
	wg.Go(func() { d.Passes(t.Context()) })
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d.Passes(ctx) {
		t.Error("nothing is known yet")
	}
	waiting := make(chan bool)
	go func() { waiting <- d.Passes(t.Context()) }()
	close(end)
	if !<-waiting {
		t.Error("the other one has found others")
	}
	wg.Wait()
}

// Who gives out tokens refuses the old key. Others are looked for, as when the store refuses them.
func TestDoubtOfALogin(t *testing.T) {
	looks := 0
	s := cloud.Service{Doubt: &cloud.Doubt{Look: func(context.Context) bool { looks++; return true }}}
	login := cloud.Login{Driver: "x"}
	unanswered := func() error {
		err := login.Note(errors.New("no such key"))
		return s.Unanswered(t.Context(), &store.Error{}, "", err)
	}
	if err := unanswered(); !errors.Is(err, store.ErrDenied) || looks != 0 {
		t.Errorf("never there: %v, %d looks", err, looks)
	}
	_ = login.Note(nil)
	if err := unanswered(); store.Permanent(err) || looks != 1 {
		t.Errorf("there before: %v, %d looks", err, looks)
	}
}
