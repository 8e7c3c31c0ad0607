package store_test

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// slowLine is a store at the end of a line that carries rate bytes a second.
type slowLine struct {
	store.Store
	rate  int64
	tries int
}

func (s *slowLine) carry(ctx context.Context, n int64) error {
	s.tries++
	return clock.Sleep(ctx, clock.Go(), time.Duration(n)*time.Second/time.Duration(s.rate))
}

func (s *slowLine) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := s.carry(ctx, int64(len(body))); err != nil {
		return store.Info{}, err
	}
	return s.Store.Put(ctx, key, body, opts)
}

func (s *slowLine) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := s.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Body = &slowBody{ReadCloser: obj.Body, line: s, ctx: ctx, n: min(obj.Size, cmp.Or(opts.Length, obj.Size))}
	}
	return obj, err
}

// slowBody comes as a whole, at the end of its time.
type slowBody struct {
	io.ReadCloser

	line *slowLine
	ctx  context.Context // of the request that the body belongs to
	n    int64
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.n > 0 {
		if err := b.line.carry(b.ctx, b.n); err != nil {
			return 0, err
		}
		b.n = 0
	}
	return b.ReadCloser.Read(p)
}

// deaf answers nothing.
type deaf struct{ store.Store }

func (deaf) Get(ctx context.Context, _ string, _ *store.GetOptions) (*store.Object, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A line so slow that a large object takes longer than Attempt carries it all the same, after a few timeouts.
// A small object, or a line that is dead, is given no more time than before.
func TestSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowLine{Store: memstore.New(nil), rate: 50_000} // one of 16 on a line of 800 KB/s
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		body := bytes.Repeat([]byte("x"), 4<<20)
		settle := &store.SettleOptions{Clock: clock.Go()}
		if _, err := store.Create(ctx, st, "k", body, &store.WriteOptions{Identity: 64, Settle: settle}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := store.Read(ctx, st, "k", &store.ReadOptions{Limit: 1 << 60, Settle: settle}); err != nil || !bytes.Equal(got, body) {
			t.Errorf("Read: %d bytes, %v", len(got), err)
		}
		dead, end := context.WithTimeout(t.Context(), 10*time.Minute)
		defer end()
		st.rate, st.tries = 1, 0
		_, _ = store.Create(dead, st, "small", body[:100], &store.WriteOptions{Settle: settle})
		if st.tries < 18 {
			t.Errorf("in ten minutes %d requests were tried", st.tries)
		}
		start := time.Now()
		_, _, err := store.Read(t.Context(), deaf{st}, "k", &store.ReadOptions{Limit: 8 << 20, Settle: settle})
		if took := time.Since(start); err == nil || took > 5*time.Minute {
			t.Errorf("a store that answers nothing: after %v: %v", took, err)
		}
	})
}
