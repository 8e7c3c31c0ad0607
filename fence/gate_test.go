package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/fence"
)

func nothing() error { return nil }

// One wild number does not lock all leaders out.
//
// guard:gate-bound. Without this check: somebody sends one request with epoch 2⁶⁴−1; from then on the gate refuses each
// leader, for ever.
func TestGateBound(t *testing.T) {
	var g fence.Gate
	if err := g.Do(t.Context(), math.MaxUint64, nothing); !errors.Is(err, fence.ErrLimit) || errors.Is(err, fence.ErrFenced) {
		t.Error(err)
	}
	if err := g.Do(t.Context(), 7, nothing); err != nil {
		t.Error(err)
	}
	if err := g.Do(t.Context(), fence.MaxEpoch, nothing); err != nil {
		t.Error(err)
	}
}

// Whoever waits for the effects of an earlier epoch gives up with its context. Its effect does not run later. Lower
// epochs are refused from the call on.
//
// guard:gate-given-up. Without this check: an effect of epoch 1 hangs; the leader of epoch 2 sends a value, gives up
// after 5 s, and sends a newer one, which waits too; when the effect of epoch 1 ends, both run, in any order, and the older
// value may stay.
func TestGateGivenUp(t *testing.T) {
	var g fence.Gate
	began, end, over := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() { over <- g.Do(t.Context(), 1, func() error { close(began); <-end; return nil }) }()
	<-began
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	waits := make(chan error)
	go func() {
		waits <- g.Do(ctx, 2, func() error { t.Error("an effect ran whose caller has given up"); return nil })
	}()
	for g.Highest() != 2 {
		runtime.Gosched()
	}
	if err := g.Do(t.Context(), 1, nothing); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("epoch 1 again: %v", err)
	}
	cancel(given)
	close(end) // at the same time
	if err := <-waits; !errors.Is(err, given) {
		t.Error(err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := g.Do(t.Context(), 2, nothing); err != nil {
		t.Error(err)
	}
}

func TestGateRefusesLowerEpochs(t *testing.T) {
	var g fence.Gate
	for _, step := range []struct {
		epoch   fence.Epoch
		stale   bool
		highest fence.Epoch
	}{{0, true, 0}, {3, false, 3}, {3, false, 3}, {2, true, 3}, {7, false, 7}, {3, true, 7}, {0, true, 7}} {
		err := g.Do(t.Context(), step.epoch, nothing)
		if errors.Is(err, fence.ErrFenced) != step.stale || (err == nil) == step.stale {
			t.Fatalf("epoch %d: got %v, want stale %v", step.epoch, err, step.stale)
		}
		var stale *fence.FencedError
		if step.stale && (!errors.As(err, &stale) || stale.Epoch != step.epoch || stale.By != step.highest) {
			t.Fatalf("epoch %d: the error does not tell both epochs: %v", step.epoch, err)
		}
		if g.Highest() != step.highest {
			t.Fatalf("epoch %d: highest is %d, want %d", step.epoch, g.Highest(), step.highest)
		}
	}
	if err := fence.NewGate(9).Do(t.Context(), 8, nothing); !errors.Is(err, fence.ErrFenced) {
		t.Fatalf("a gate that begins at 9 let 8 in: %v", err)
	}
}

// A zombie's effect that has begun ends before a higher epoch gets in.
//
// guard:gate-inside. Without this wait: zombie Z passes the gate with epoch 1, and its effect takes long; leader B passes
// with epoch 2, and its effect ends first; Z's effect comes after B's, and replaces it.
func TestGateLetsNoOldEffectEndAfterANewOne(t *testing.T) {
	var g fence.Gate
	began, release, entered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var order []string
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = g.Do(t.Context(), 1, func() error { close(began); <-release; order = append(order, "old"); return nil })
	})
	<-began
	wg.Go(func() {
		_ = g.Do(t.Context(), 2, func() error { close(entered); order = append(order, "new"); return nil })
	})
	for range 1000 { // every chance to get in
		select {
		case <-entered:
			t.Error("epoch 2 got in while an effect of epoch 1 was under way")
			close(release)
			wg.Wait()
			return
		default:
			runtime.Gosched()
		}
	}
	close(release)
	wg.Wait()
	if fmt.Sprint(order) != "[old new]" {
		t.Fatalf("order %v", order)
	}
	if err := g.Do(t.Context(), 1, func() error { t.Error("a stale effect ran"); return nil }); !errors.Is(err, fence.ErrFenced) {
		t.Fatalf("got %v", err)
	}
}

func TestGateConcurrently(t *testing.T) {
	var g fence.Gate
	var last atomic.Uint64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 500 {
				e := fence.Epoch(1 + (i*8+w)/16)
				err := g.Do(t.Context(), e, func() error {
					for {
						seen := last.Load()
						if seen > uint64(e) {
							t.Errorf("epoch %d had its effect after epoch %d", e, seen)
						}
						if last.CompareAndSwap(seen, uint64(e)) {
							return nil
						}
					}
				})
				if err != nil && !errors.Is(err, fence.ErrFenced) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if want := errors.New("boom"); !errors.Is(g.Do(t.Context(), 1<<20, func() error { return want }), want) {
		t.Error("the effect's error is lost")
	}
}

// An HTTP service that refuses requests of deposed leaders: the leader sends
// its epoch in a header with everything that changes something.
func ExampleGate_http() {
	var gate fence.Gate
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		epoch, err := strconv.ParseUint(r.Header.Get("X-Epoch"), 10, 64)
		if err != nil {
			http.Error(w, "X-Epoch is missing", http.StatusBadRequest)
			return
		}
		err = gate.Do(r.Context(), fence.Epoch(epoch), func() error {
			// The effect, inside the gate.
			_, err := fmt.Fprintln(w, "done")
			return err
		})
		if errors.Is(err, fence.ErrFenced) {
			http.Error(w, err.Error(), http.StatusPreconditionFailed)
		}
	}))
	defer service.Close()

	for _, epoch := range []string{"4", "5", "4"} { // epoch 4 is a zombie in the end
		req, _ := http.NewRequest(http.MethodPost, service.URL, nil)
		req.Header.Set("X-Epoch", epoch)
		resp, err := service.Client().Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println("epoch", epoch, resp.StatusCode)
	}
	// Output:
	// epoch 4 200
	// epoch 5 200
	// epoch 4 412
}

// A sink with transactions keeps the highest epoch next to the data. Here a
// table in memory stands for
//
//	UPDATE account SET balance = $2, epoch = $1 WHERE id = $3 AND epoch <= $1
func ExampleGate_sql() {
	type row struct {
		balance int
		epoch   fence.Epoch
	}
	account := row{}
	update := func(token fence.Token, balance int) error {
		if account.epoch > token.Epoch() { // no row matches
			return &fence.FencedError{Epoch: token.Epoch(), By: account.epoch}
		}
		account = row{balance, token.Epoch()}
		return nil
	}
	fmt.Println(update(fence.NewToken(4), 100))
	fmt.Println(update(fence.NewToken(5), 200))
	fmt.Println(update(fence.NewToken(4), 300))
	fmt.Println(account.balance)
	// Output:
	// <nil>
	// <nil>
	// fenced: epoch 4 has been replaced by epoch 5
	// 200
}
