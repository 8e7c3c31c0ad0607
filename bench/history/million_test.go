package history

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// uploads counts the bytes of segments that are written.
type uploads struct {
	store.Store
	bytes atomic.Int64
}

type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (u *uploads) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	return u.Store.Upload(ctx, key, counted{body, &u.bytes}, opts)
}

// requests counts requests and the bytes of their bodies.
type requests struct {
	store.Store
	n, bytes atomic.Int64
}

func (r *requests) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	r.n.Add(1)
	o, err := r.Store.Get(ctx, key, opts)
	if err == nil {
		r.bytes.Add(o.Size)
	}
	return o, err
}

func (r *requests) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	r.n.Add(1)
	r.bytes.Add(int64(len(body)))
	return r.Store.Put(ctx, key, body, opts)
}

func (r *requests) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	r.n.Add(1)
	return r.Store.List(ctx, prefix, opts)
}

// opening counts the requests to open a reader and read one record, and to open a writer.
func opening(t *testing.T, st store.Store, records uint64, epoch fence.Epoch) {
	t.Helper()
	c := &requests{Store: st}
	for _, at := range []struct {
		what string
		from uint64
	}{{"first", 0}, {"middle", records / 2}, {"last", records - 1}} {
		what, from := at.what, at.from
		c.n.Store(0)
		r, err := reader.Open(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for rec, err := range r.Read(t.Context(), from) {
			if err != nil || rec.Offset != from {
				t.Fatal(rec.Offset, err)
			}
			break
		}
		exact(t, Row{Name: "requests to open a reader and read the " + what + " record of " + number(records), Value: float64(c.n.Load()), Goal: 8})
	}
	c.n.Store(0)
	w, err := writer.Open(t.Context(), c, fence.NewToken(epoch), &writer.Options{Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	n := c.n.Load()
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	exact(t, Row{Name: "requests to open a writer behind " + number(records) + " commits", Value: float64(n), Goal: 8, Note: "some of the 3 for a manifest, off the path, may be among them; see TestOpeningCosts of package compactor"})
}

// number is n with a comma before each three digits.
func number(n uint64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", number(n/1000), n%1000)
}

// A million commits by twenty leaders, with a fold after every 500. Without -results it is a tenth of that.
func TestMillion(t *testing.T) {
	const each, leaders = 500, 20
	commits := uint64(100_000)
	if inFull() {
		commits = 1_000_000
	}
	st := &uploads{Store: memstore.New(nil)}
	j := newJournal(t, st, -1)
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), NoCompress: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := []byte(strings.Repeat("r", 100))
	for n := range commits {
		if n%(commits/leaders) == 0 {
			j.lead()
		}
		j.commit(frame.Plain, rec)
		if n%each == each-1 {
			j.done()
			if _, err := c.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	opening(t, st, commits, leaders+1)
	left := map[string]int{}
	var segments int64
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(info.Key, "/")
		left[kind]++
		if kind == "segment" {
			segments += info.Size
		}
	}
	total := 0
	for _, n := range left {
		total += n
	}
	amp := float64(st.bytes.Load()) / float64(segments)
	exact(t, Row{Name: "objects left after " + number(commits) + " commits", Value: float64(total), Goal: 2000, Note: fmt.Sprint(left)})
	exact(t, Row{Name: "bytes of segments written, per byte left", Value: amp, Goal: 4, Note: fmt.Sprintf("%d folds of %d commits", commits/each, each)})
}
