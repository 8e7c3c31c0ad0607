package grouptest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

const (
	partitions = 12
	// validity allows for stores that take one write a second of one key.
	validity = 5 * time.Second
	// patience is for slow machines.
	patience = 2 * time.Minute
)

// Run tells a story in the time of a clock, clock.System or that of a bubble: members join, one crashes, one is drained, partitions are added. Each
// partition must have an owner again each time. No two members may own one at once, by their own
// belief, and tokens must rise. A session may be lost, as on a slow machine; its worker joins again.
func Run(t *testing.T, st store.Store, c clock.Clock) {
	s := &story{T: t, clock: c, st: faultstore.New(st, &faultstore.Options{Clock: c}), owners: map[int]*group.Partition{}, by: map[int]string{}, tokens: map[int]fence.Epoch{}}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	join := func(name string, n int) *faultstore.Store {
		client := s.st.Client(name)
		all.Go(func() { s.work(ctx, client, name, n) })
		return client
	}
	crashes := join("ada", partitions)
	s.await("ada owns all", func() bool { return s.owns("ada") == partitions })
	join("bob", partitions)
	join("cyd", 0)
	s.await("three share", func() bool {
		return s.owns("ada") == partitions/3 && s.owns("bob") == partitions/3 && s.owns("cyd") == partitions/3
	})
	crashes.Crash()
	s.await("two share, after a crash", func() bool { return s.owns("bob") == partitions/2 && s.owns("cyd") == partitions/2 })
	join("dan", partitions+3)
	s.await("three share more partitions", func() bool {
		return s.owns("bob") == partitions/3+1 && s.owns("cyd") == partitions/3+1 && s.owns("dan") == partitions/3+1
	})
	for status, err := range group.Observe(ctx, s.st, &group.Options{Clock: c}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range status.Members {
			if m.Identity == "cyd" && !m.Expired && !m.Leaving {
				if err := group.Drain(ctx, s.st, m.Name, &group.Options{Clock: c}); err != nil {
					t.Fatal(err)
				}
			}
		}
		break
	}
	s.await("cyd is drained", func() bool { return s.owns("cyd") == 0 && s.owns("bob")+s.owns("dan") == partitions+3 })
}

type story struct {
	*testing.T
	clock clock.Clock
	st    *faultstore.Store

	mu     sync.Mutex
	owners map[int]*group.Partition
	by     map[int]string
	tokens map[int]fence.Epoch
}

// work is a worker. It ends when it is drained.
func (s *story) work(ctx context.Context, st *faultstore.Store, name string, n int) {
	for ctx.Err() == nil && !st.Crashed() {
		opts := &group.Options{Partitions: n, Identity: name, Clock: s.clock}
		if n > 0 {
			opts.Validity = validity
		}
		g, err := group.Join(ctx, st, opts)
		if err == nil {
			err = g.Run(ctx, func(ctx context.Context, p *group.Partition) error { return s.own(ctx, name, p) })
		}
		switch {
		case err == nil || ctx.Err() != nil || st.Crashed():
			return
		case errors.Is(err, group.ErrLost):
			s.Logf("%s joins again: %v", name, err)
		case errors.Is(err, group.ErrOptions) && n > 0:
			n = 0 // others have raised the number
		default:
			s.Errorf("%s: %v", name, err)
			return
		}
	}
}

// own is the work on a partition.
func (s *story) own(ctx context.Context, name string, p *group.Partition) error {
	n, token := p.Number(), p.Token().Epoch()
	s.mu.Lock()
	if o := s.owners[n]; o != nil && o.Remaining() > 0 && p.Remaining() > 0 {
		s.Errorf("%s opens partition %d while %s owns it", name, n, s.by[n])
	}
	if token <= s.tokens[n] {
		s.Errorf("%s opens partition %d with token %d after %d", name, n, token, s.tokens[n])
	}
	s.owners[n], s.by[n], s.tokens[n] = p, name, token
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[n] == p {
		delete(s.owners, n)
	}
	return context.Cause(ctx)
}

func (s *story) owns(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, o := range s.owners {
		if s.by[p] == name && o.Remaining() > 0 {
			n++
		}
	}
	return n
}

func (s *story) await(what string, ok func() bool) {
	s.Helper()
	late, cancel := clock.WithTimeout(s.Context(), s.clock, patience, context.DeadlineExceeded)
	defer cancel()
	for !ok() {
		if clock.Sleep(late, s.clock, 50*time.Millisecond) != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.Fatalf("not after %v: %s; owners are %v", patience, what, fmt.Sprint(s.by))
		}
	}
	s.Log(what)
}
