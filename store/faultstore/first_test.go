package faultstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// Many clients make requests at once. One of these requests waits for what runs once, and no other
// does: neither one that this makes itself, nor another one that fits. The variables are plain ones, so
// the race detector sees whether fits and do are in order.
func TestBeforeFirst(t *testing.T) {
	inner := memstore.New(nil)
	st := faultstore.New(inner, nil)
	const nth, clients = 3, 8
	asked, times, told := 0, 0, ""
	passed := make(chan struct{}) // somebody has come by while do runs
	var done func() bool
	done = st.BeforeFirst(func(op faultstore.Op) bool {
		if op.Kind != faultstore.Put || !strings.HasPrefix(op.Key, "k/") {
			return false
		}
		asked++
		return asked == nth
	}, func(ctx context.Context) {
		times++
		if done() {
			t.Error("it is done, and runs")
		}
		if _, err := st.Put(ctx, "k/mine", []byte("first"), nil); err != nil {
			t.Error(err)
		}
		<-passed
		told = "all"
	})
	var all sync.WaitGroup
	var once sync.Once
	for i := range clients {
		all.Go(func() {
			if err := put(st, "other", "", store.Condition{}); err != nil {
				t.Error(err)
			}
			for range nth {
				if err := put(st, fmt.Sprint("k/", i), "", store.Condition{}); err != nil {
					t.Error(err)
				}
			}
			once.Do(func() { close(passed) })
		})
	}
	for !done() {
		runtime.Gosched()
	}
	if asked != nth || times != 1 || told != "all" || body(t, inner, "k/mine") != "first" {
		t.Errorf("asked %d times, ran %d times, %q", asked, times, told)
	}
	all.Wait()
}

// What ends its goroutine, as t.Fatal does, is not done, and does not run again.
func TestBeforeFirstThatEnds(t *testing.T) {
	st := faultstore.New(memstore.New(nil), nil)
	times := 0
	done := st.BeforeFirst(func(faultstore.Op) bool { return true }, func(context.Context) {
		times++
		runtime.Goexit()
	})
	for range 2 {
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = put(st, "k", "", store.Condition{})
		}()
		<-over
	}
	if done() || times != 1 {
		t.Errorf("done: %v, after %d times", done(), times)
	}
}
