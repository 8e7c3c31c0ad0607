package group_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// slow is a store that takes one write a second of one key, and answers 429 to others.
type slow struct {
	store.Store
	*clerk
	name int // of the client
}

// clerk is what all clients of the store share.
type clerk struct {
	mu      sync.Mutex
	last    map[string]time.Time
	by      map[string]int
	refused []string // writes whose client has just written the key itself
}

func (s *slow) Traits() store.Traits {
	t := s.Store.Traits()
	t.MinRewrite = time.Second
	return t
}

func (s *slow) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.last[key]; ok && time.Since(at) < time.Second {
		if s.by[key] == s.name {
			s.refused = append(s.refused, fmt.Sprintf("%s after %v", key, time.Since(at)))
		}
		return store.Info{}, &store.Error{Op: "put", Key: key, Status: http.StatusTooManyRequests}
	}
	info, err := s.Store.Put(ctx, key, body, opts)
	if err == nil {
		s.last[key], s.by[key] = time.Now(), s.name
	}
	return info, err
}

// T34: on a store that takes one write a second of one key, no member writes one more often. Two may write one
// key: the hint, when an organiser that leaves is followed by another. Then the second one repeats it.
func TestT34_OneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		group.Found(t, mem, 30, validity)
		st := &clerk{last: map[string]time.Time{}, by: map[string]int{}}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 700 * time.Millisecond)
				// They leave soon one after the other, each with an assignment at once.
				ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errStop)
				defer cancel()
				g, err := group.Join(ctx, &slow{mem, st, i}, &group.Options{Clock: clock.Go(), Renew: time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				_ = g.Run(ctx, func(ctx context.Context, _ *group.Partition) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
			})
		}
		all.Wait()
		for _, key := range st.refused {
			t.Errorf("%s was written twice within a second", key)
		}
	})
}
