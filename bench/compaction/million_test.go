package compaction

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
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

// A million commits by twenty leaders, folded some hundred at a time.
func TestMillion(t *testing.T) {
	const commits, each, leaders = 1_000_000, 500, 20
	st := &uploads{Store: memstore.New()}
	j := newJournal(t, st)
	c, err := compactor.New(st, &compactor.Options{NoCompress: true})
	if err != nil {
		t.Fatal(err)
	}
	rec := []byte(strings.Repeat("r", 100))
	for n := range commits {
		if n%(commits/leaders) == 0 {
			j.lead()
		}
		j.commit(fence.Plain, rec)
		if n%each == each-1 {
			j.done()
			if _, err := c.Once(t.Context(), fence.NewToken(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.Once(t.Context(), fence.NewToken(1)); err != nil {
		t.Fatal(err)
	}
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
	add(t, Row{Name: "objects left after 1,000,000 commits", Value: float64(total), Goal: 2000, Note: fmt.Sprint(left)})
	add(t, Row{Name: "bytes of segments written, per byte left", Value: amp, Goal: 4, Note: fmt.Sprintf("%d folds of %d commits", commits/each, each)})
	if total > 2000 || amp > 4 {
		t.Errorf("%d objects, written %.2f times", total, amp)
	}
}
