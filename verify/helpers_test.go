package verify_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

func newLog(t testing.TB) *logtest.Log { return logtest.New(t, logtest.Format(), nil) }

// compactorOf is a compactor of the next epoch.
func compactorOf(l *logtest.Log, opts compactor.Options) *compactor.Compactor {
	l.Helper()
	l.Token++
	opts.Token = fence.NewToken(l.Token)
	c, err := compactor.New(l.Mem, &opts)
	if err != nil {
		l.Fatal(err)
	}
	return c
}

func compact(l *logtest.Log) {
	l.Helper()
	if _, err := compactorOf(l, compactor.Options{}).Once(context.Background()); err != nil {
		l.Fatal(err)
	}
}

// sample is a log with two folded epochs, a folded part of the third, and a chain that
// goes on with it into the fourth. Its floor is at 3/4, its tail at 4/4. Records: 3 in
// each epoch, and 3 more in the third.
func sample(t testing.TB) *logtest.Log {
	t.Helper()
	l := newLog(t)
	l.Lead(3)
	l.Lead(3)
	w := l.Open(nil)
	for i, v := range []string{"a", "b", "c", "d", "e", "f"} {
		if i == 3 {
			compact(l)
		}
		l.Append(w, v)
	}
	l.Close(w)
	l.Lead(3)
	e, err := leader.New(l.Mem, layout.KindLock, &leader.Options{Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func slot(epoch fence.Epoch, seq uint64) string {
	return layout.DataKey(fence.Position{Epoch: epoch, Seq: seq})
}

func run(t testing.TB, st store.Store) *verify.Report {
	t.Helper()
	r, err := verify.Run(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// del deletes an object, which must be there.
func del(l *logtest.Log, key string) {
	l.Helper()
	l.Body(key)
	l.Remove(key)
}

// flip changes one bit of an object.
func flip(l *logtest.Log, key string, at int) {
	l.Helper()
	b := bytes.Clone(l.Body(key))
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	l.Put(key, b)
}

// rewrite puts another record into the slot of an object, so much later in the log.
func rewrite(l *logtest.Log, key string, later uint64) {
	l.Helper()
	f, err := frame.Decode(l.Body(key), fence.DefaultLimits())
	if err != nil {
		l.Fatal(err)
	}
	l.Put(key, l.Data(frame.Point{Position: f.Position, Offset: f.Offset + later, Prev: f.Prev}, "something else"))
}
