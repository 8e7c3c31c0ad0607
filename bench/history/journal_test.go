package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
)

// journal makes a log without a writer, which would be slow.
type journal struct {
	testing.TB
	st     store.Store
	format manifest.Format
	at     frame.Point
	group  errgroup.Group
}

// newJournal makes a log with this grace period, none if negative. The store is not
// probed.
func newJournal(t testing.TB, st store.Store, grace time.Duration) *journal {
	t.Helper()
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	body, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{TB: t, st: st, format: f, at: frame.Start()}
	j.group.SetLimit(16)
	j.put(layout.FormatKey, body)
	return j
}

func (j *journal) put(key string, body []byte) {
	j.group.Go(func() error {
		_, err := j.st.Put(context.Background(), key, body, nil)
		return err
	})
}

// done waits for all puts.
func (j *journal) done() {
	j.Helper()
	if err := j.group.Wait(); err != nil {
		j.Fatal(err)
	}
}

func (j *journal) follow(body []byte) {
	j.Helper()
	f, err := frame.Decode(body, fence.DefaultLimits())
	if err == nil {
		j.put(layout.DataKey(j.at.Position), body)
		j.at, err = j.at.Next(j.format.Log, f)
	}
	if err != nil {
		j.Fatal(err)
	}
}

// lead begins an epoch.
func (j *journal) lead() {
	j.Helper()
	h := frame.Header{Log: j.format.Log, Nonce: fence.ID(uuid.New()), Position: j.at.Position, Time: time.Now()}
	j.follow(frame.EncodeSeal(&h, j.at.Position.Epoch+1))
}

// commit puts an object with some records.
func (j *journal) commit(codec frame.Codec, records ...[]byte) {
	j.Helper()
	var b frame.Builder
	for _, r := range records {
		b.Add(r)
	}
	h := frame.Header{Log: j.format.Log, Nonce: fence.ID(uuid.New()), Position: j.at.Position, Offset: j.at.Offset, Prev: j.at.Prev, Time: time.Now()}
	j.follow(slices.Clone(b.Finish(&h, codec)))
}

// events returns records that resemble log lines: text with some repetition.
func events(rng *rand.Rand, bytes int) [][]byte {
	var all [][]byte
	for n := 0; n < bytes; {
		rec := fmt.Appendf(nil, `{"time":"2026-11-21T12:%02d:%02d.%06dZ","user":%d,"session":"%016x","action":"%s","amount":%d.%02d}`,
			rng.IntN(60), rng.IntN(60), rng.IntN(1e6), rng.IntN(1e6), rng.Uint64(), []string{"view", "click", "buy", "leave"}[rng.IntN(4)], rng.IntN(1000), rng.IntN(100))
		all = append(all, rec)
		n += len(rec)
	}
	return all
}
