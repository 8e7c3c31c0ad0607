package reader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// copyRecords appends the records of one log to another. The offset of the next record is the
// cursor of the log that is written, so a record and its offset are one append: after a crash the
// copy goes on where it was.
func copyRecords(ctx context.Context, from *reader.Reader, to *writer.Writer) error {
	next := uint64(0)
	if c := to.Recovered().Cursor; len(c) > 0 {
		var err error
		if next, err = strconv.ParseUint(string(c), 10, 64); err != nil {
			return err
		}
	}
	for rec, err := range from.Read(ctx, next) { // Tail also waits for more
		if err != nil {
			return err
		}
		cursor := writer.Cursor(strconv.AppendUint(nil, rec.Offset+1, 10))
		if _, err := to.Append(ctx, [][]byte{rec.Value}, cursor); err != nil {
			return err
		}
	}
	return nil
}

// A pipeline between two logs keeps its place in the log that it writes. It needs no Consumer.
func Example_betweenLogs() {
	ctx, orders, invoices := context.Background(), memstore.New(nil), memstore.New(nil)
	fill(ctx, orders, "one", "two", "three")
	r, err := reader.Open(ctx, orders, nil)
	if err != nil {
		panic(err)
	}
	for epoch := range fence.Epoch(2) { // the second time after a restart
		w, err := writer.Open(ctx, invoices, fence.NewToken(epoch+1), nil)
		if err != nil {
			panic(err)
		}
		if err := copyRecords(ctx, r, w); err != nil {
			panic(err)
		}
		if err := w.Close(ctx); err != nil {
			panic(err)
		}
	}
	if r, err = reader.Open(ctx, invoices, nil); err != nil {
		panic(err)
	}
	for rec, err := range r.Read(ctx, 0) {
		fmt.Println(rec.Offset, string(rec.Value), err)
	}
	// Output:
	// 0 one <nil>
	// 1 two <nil>
	// 2 three <nil>
}

// pipeline is a process that copies the records of the log in from to the log in to. It returns
// the error that has ended it.
type pipeline func(ctx context.Context, from, to store.Store, epoch fence.Epoch) error

// opened calls do with both logs open.
func opened(do func(context.Context, *reader.Reader, *writer.Writer, fence.Token) error) pipeline {
	return func(ctx context.Context, from, to store.Store, epoch fence.Epoch) error {
		settle := &store.SettleOptions{Clock: clock.Go()}
		r, err := reader.Open(ctx, from, &reader.Options{Clock: clock.Go(), Settle: settle})
		if err != nil {
			return err
		}
		w, err := writer.Open(ctx, to, fence.NewToken(epoch), &writer.Options{Clock: clock.Go(), Settle: settle})
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, r, w, fence.NewToken(epoch)), w.Close(ctx))
	}
}

// withCursor keeps the place as the cursor of the log that it writes.
var withCursor = opened(func(ctx context.Context, r *reader.Reader, w *writer.Writer, _ fence.Token) error {
	return copyRecords(ctx, r, w)
})

// withConsumer keeps the place beside the log that it reads, and commits it after each append.
var withConsumer = opened(func(ctx context.Context, r *reader.Reader, w *writer.Writer, token fence.Token) error {
	c, err := r.Consumer(ctx, "copier", token)
	if err != nil {
		return err
	}
	next, _ := c.Next()
	for rec, err := range r.Read(ctx, next) {
		if err != nil {
			return err
		}
		if _, err := w.Append(ctx, [][]byte{rec.Value}); err != nil {
			return err
		}
		if err := c.Commit(ctx, rec.Offset+1); err != nil {
			return err
		}
	}
	return nil
})

// killedAt runs a pipeline that is killed at its n-th request, before or after that is applied, and
// again, and a third time to the end. It returns what the written log holds then, and whether the
// pipeline was killed.
func killedAt(t *testing.T, run pipeline, records []string, n int, applied bool) (copied []string, killed bool) {
	synctest.Test(t, func(t *testing.T) {
		from, to := logtest.New(t, logtest.Format(), nil), logtest.New(t, logtest.Format(), nil)
		fill(t.Context(), from.Mem, records...)
		source := faultstore.New(from.Mem, &faultstore.Options{Clock: clock.Go()})
		target := faultstore.New(to.Mem, &faultstore.Options{Clock: clock.Go()})
		for epoch := range fence.Epoch(3) {
			name := fmt.Sprint(epoch)
			a, b := source.Client(name), target.Client(name)
			var requests atomic.Int64
			step := func() {
				if requests.Add(1) == int64(n) && epoch < 2 {
					a.Crash()
					b.Crash()
				}
			}
			for _, st := range []*faultstore.Store{source, target} {
				if applied {
					st.SetAfter(func(context.Context, faultstore.Op, error) { step() })
				} else {
					st.SetBefore(func(context.Context, faultstore.Op) { step() })
				}
			}
			err := run(t.Context(), a, b, epoch+1)
			killed = killed || a.Crashed()
			if err != nil && !a.Crashed() {
				t.Errorf("request %d, epoch %d: %v", n, epoch+1, err)
			}
		}
		var err error
		if copied, err = logtest.Read(to.Mem, 0, nil); err != nil {
			t.Error(err)
		}
	})
	return copied, killed
}

// A pipeline is killed at each of its requests, so also between an append and the note of it. With
// the place as a cursor no record is lost and none is doubled. With a Consumer none is lost, and
// each kill doubles one record at most: the one that was not committed yet.
func TestPipelineKilled(t *testing.T) {
	records := []string{"one", "two", "three", "four"}
	for _, applied := range []bool{false, true} {
		for n := 1; ; n++ {
			copied, killed := killedAt(t, withCursor, records, n, applied)
			if !slices.Equal(copied, records) {
				t.Errorf("with a cursor, killed at request %d (applied: %v): %q", n, applied, copied)
			}
			if !killed {
				t.Logf("a copy has %d requests", n-1)
				break
			}
		}
		doubled := 0
		for n := 1; ; n++ {
			copied, killed := killedAt(t, withConsumer, records, n, applied)
			if !slices.Equal(slices.Compact(slices.Clone(copied)), records) || len(copied) > len(records)+2 {
				t.Errorf("with a Consumer, killed at request %d (applied: %v): %q", n, applied, copied)
			}
			doubled += len(copied) - len(records)
			if !killed {
				break
			}
		}
		if doubled == 0 {
			t.Error("no kill was between an append and its commit")
		}
	}
}
