package cloud

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// Doubt is about credentials that a store refuses. Perhaps the machine has resumed, and its token has lapsed or its clock is wrong,
// or somebody has put another key in place of the old one. Then the store takes the same ones or others in a moment.
type Doubt struct {
	// Look looks for other credentials, and takes them for all later requests. It reports whether there were some. It may be nil.
	Look func(ctx context.Context) (others bool)
	// Clock is the machine's by default.
	Clock clock.Clock

	worked atomic.Bool // the store has taken credentials
	rounds atomic.Int64

	once    sync.Once
	looking chan struct{} // held by who looks
	found   bool          // the result of the last look; guarded by looking
	at      clock.Instant // when one has found others; likewise

	mu           sync.Mutex
	first, again clock.Instant // the first and the last refusal of those that come one after the other; 0 if none
}

const (
	// aMoment is for how long a refusal of credentials that have worked may pass.
	aMoment = time.Minute
	// oneLook bounds the search for other credentials. If there are some, requests that had the old ones may fail for so long.
	oneLook = 10 * time.Second
)

var errLook = errors.New("the search for other credentials takes too long")

// Over returns base, and notes there that the store takes the credentials.
func (d *Doubt) Over(base http.RoundTripper) http.RoundTripper { return &taken{base, d} }

type taken struct {
	base  http.RoundTripper
	doubt *Doubt
}

func (t *taken) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err == nil && (resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusPreconditionFailed) && !t.doubt.worked.Load() {
		t.doubt.worked.Store(true)
	}
	return resp, err
}

// Passes reports whether a refusal of the credentials may pass. It looks for others, for no longer than ctx. It is false for
// credentials that the store has never taken, unless there are others now, and when it has refused them for a minute.
func (d *Doubt) Passes(ctx context.Context) bool {
	if d == nil {
		return false
	}
	now := clock.Or(d.Clock).Now()
	d.mu.Lock()
	if d.first == 0 || now.Sub(d.again) >= aMoment {
		d.first = now
	}
	d.again = now
	since := now.Sub(d.first)
	d.mu.Unlock()
	others := d.look(ctx)
	return since < aMoment && (others || d.worked.Load())
}

// look lets one caller look at a time. The others wait for its result, but no longer than for their own requests.
func (d *Doubt) look(ctx context.Context) bool {
	if d.Look == nil {
		return false
	}
	d.once.Do(func() { d.looking = make(chan struct{}, 1) })
	round := d.rounds.Load()
	select {
	case d.looking <- struct{}{}:
		defer func() { <-d.looking }()
	case <-ctx.Done():
		return false
	}
	c := clock.Or(d.Clock)
	if d.rounds.Load() == round {
		ctx, cancel := clock.WithTimeout(ctx, c, oneLook, errLook)
		defer cancel()
		if d.found = d.Look(ctx); d.found {
			d.at = c.Now()
		}
		d.rounds.Add(1)
	}
	return d.found || d.at != 0 && c.Now().Sub(d.at) < oneLook
}
