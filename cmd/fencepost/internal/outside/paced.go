package outside

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// paced is a store and a clock which make group.Observe look less often. Observe has one clock for all: for the
// pause between two looks, for how long an attempt may take, and for the pause before the next one. Which a timer
// is for shows when it is over, by what has become of the requests.
type paced struct {
	store.Store
	clock.Clock
	pause   time.Duration      // between two looks, at least
	attempt time.Duration      // which includes the wait for its turn
	looked  func(at time.Time) // is called after each look that succeeds; calls nothing of paced

	mu     sync.Mutex
	open   int           // requests
	failed bool          // the last one was not answered
	ended  time.Time     // when the last one was
	next   time.Duration // the next pause, if it is shorter than the others
}

// hurry makes the next looks come soon, and then less and less often: with many targets a look may come later than an
// alert waits. Observe tells only what has changed, so this goes on while it tells nothing.
func (p *paced) hurry(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = p.pause
	if on {
		p.next = 40 * time.Second
	}
}

// least is how long a timer that is over now lasts at least.
func (p *paced) least() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.open > 0:
		return p.attempt
	case p.failed:
		return 0
	}
	p.looked(p.ended)
	d := min(p.pause, p.next)
	p.next = 2 * d
	return d
}

func (p *paced) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &pacedTimer{}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Timer = p.Clock.AfterFunc(d, func() {
		more := p.least() - d
		if more <= 0 {
			f()
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.stopped {
			t.Timer = p.Clock.AfterFunc(more, f)
		}
	})
	return t
}

type pacedTimer struct {
	mu sync.Mutex
	clock.Timer
	stopped bool
}

func (t *pacedTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	return t.Timer.Stop()
}

// begin is called before a request, and what it returns after it.
func (p *paced) begin() (end func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open--
		p.failed, p.ended = err != nil && !answers(err), p.Wall()
	}
}

// answers reports whether an error is the store's answer.
func answers(err error) bool {
	e := (*store.Error)(nil)
	return errors.As(err, &e) && e.Kind != nil
}

func (p *paced) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	end := p.begin()
	obj, err := p.Store.Get(ctx, key, opts)
	if err != nil {
		end(err)
		return obj, err
	}
	obj.Body = &body{ReadCloser: obj.Body, ended: end}
	return obj, nil
}

func (p *paced) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		end := p.begin()
		var failed error
		defer func() { end(failed) }()
		for info, err := range p.Store.List(ctx, prefix, opts) {
			failed = err
			if !yield(info, err) {
				return
			}
		}
	}
}
