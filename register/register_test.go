package register_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

const key = "latest.json"

func open(t *testing.T, st store.Store, epoch fence.Epoch) *register.Register {
	t.Helper()
	r, err := register.Open(t.Context(), st, key, fence.NewToken(epoch), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func set(t *testing.T, r *register.Register, value string) {
	t.Helper()
	if err := r.Set(t.Context(), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, st store.Store, epoch fence.Epoch, value string) {
	t.Helper()
	s, err := register.Read(t.Context(), st, key, nil)
	if err != nil || s.Epoch != epoch || string(s.Value) != value {
		t.Errorf("it holds %q of epoch %d, %v; want %q of %d", s.Value, s.Epoch, err, value, epoch)
	}
}

func isFenced(t *testing.T, err error, epoch, by fence.Epoch) {
	t.Helper()
	f, ok := errors.AsType[*fence.FencedError](err)
	if !ok || f.Epoch != epoch || f.By != by || f.Key != key {
		t.Errorf("%v; want epoch %d fenced by %d", err, epoch, by)
	}
}

func TestValues(t *testing.T) {
	st := memstore.New(nil)
	if _, err := register.Read(t.Context(), st, key, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nothing is there: %v", err)
	}
	r := open(t, st, 3)
	if r.Value() != nil || r.Epoch() != 3 {
		t.Errorf("%q, epoch %d", r.Value(), r.Epoch())
	}
	for _, v := range []string{"one", "", "\xff\x00", "zwei\u2028<&>", "\x00"} {
		set(t, r, v)
		holds(t, st, 3, v)
		next := open(t, st, r.Epoch()) // the same token again
		if got := next.Value(); got == nil || string(got) != v {
			t.Errorf("%q, want %q", got, v)
		}
		r = next
	}
	s, err := register.Read(t.Context(), st, key, nil)
	if err != nil || s.Writes != 11 {
		t.Errorf("%d writes, %v", s.Writes, err)
	}
}

// A later epoch owns the register as soon as Open has returned. A zombie can neither set nor open it.
//
// guard:register-epoch. A register is an object with a small value. Without this check: the leader of
// epoch 2 has set the value to 9; zombie Z, the leader of epoch 1, wakes up, opens the register again,
// and sets the value back to 8.
func TestZombie(t *testing.T) {
	st := memstore.New(nil)
	a := open(t, st, 1)
	set(t, a, "a")
	b := open(t, st, 7)
	if string(b.Value()) != "a" {
		t.Errorf("%q", b.Value())
	}
	for range 2 {
		isFenced(t, a.Set(t.Context(), []byte("zombie")), 1, 7)
	}
	_, err := register.Open(t.Context(), st, key, fence.NewToken(6), nil)
	isFenced(t, err, 6, 7)
	holds(t, st, 7, "a")
	set(t, b, "b")
	holds(t, st, 7, "b")
}

// Of two holders of one token the later owns the register.
//
// guard:register-own. Without this check: A has opened the register; B opens it with the same token, or
// a later one, and sets a value; A's next write is refused; A reads the object, and overwrites B's
// value with its own.
func TestTwins(t *testing.T) {
	st := memstore.New(nil)
	a, b := open(t, st, 5), open(t, st, 5)
	set(t, b, "b")
	isFenced(t, a.Set(t.Context(), []byte("a")), 5, 5)
	holds(t, st, 5, "b")
}

// Take takes the register from whoever has it.
func TestTake(t *testing.T) {
	st := memstore.New(nil)
	for want := fence.Epoch(1); want < 4; want++ {
		r, err := register.Take(t.Context(), st, key, nil)
		if err != nil || r.Epoch() != want {
			t.Fatalf("%v, %v", r.Epoch(), err)
		}
	}
	open(t, st, math.MaxUint64)
	if r, err := register.Take(t.Context(), st, key, nil); err != nil || r.Epoch() != math.MaxUint64 {
		t.Errorf("%v, %v", r, err)
	}
}

// The last value of epoch 1 is on its way when epoch 2 opens the register. It never gets in.
//
// guard:register-claim. Without this write: A, the leader of epoch 1, sends the value 9, and dies; B
// opens the register for epoch 2, and reads the value 8; A's request is applied; B works on from 8,
// although readers of the register see 9; B learns of this only when its own first write is refused.
func TestLateSet(t *testing.T) {
	f := faultstore.New(memstore.New(nil), nil)
	a := open(t, f.Client("a"), 1)
	set(t, a, "early")
	f.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Client: "a", Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}}}))
	ctx, cancel := context.WithCancel(t.Context())
	f.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
		if op.Client == "a" && op.Kind == faultstore.Put {
			cancel()
		}
	})
	if err := a.Set(ctx, []byte("late")); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("Set: %v", err)
	}
	b := open(t, f.Client("b"), 2)
	if string(b.Value()) != "early" {
		t.Errorf("%q", b.Value())
	}
	if n := f.Release(t.Context(), nil); n != 1 {
		t.Fatalf("%d late requests", n)
	}
	holds(t, f, 2, "early")
	set(t, b, "b")
	holds(t, f, 2, "b")
}

// After an unknown outcome the next value wins, whether the one before has landed or not.
func TestSetAfterUnknown(t *testing.T) {
	for _, landed := range []bool{false, true} {
		f := faultstore.New(memstore.New(nil), nil)
		r := open(t, f, 1)
		f.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}}}))
		ctx, cancel := context.WithCancel(t.Context())
		f.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
			if op.Kind == faultstore.Put {
				cancel()
			}
		})
		if err := r.Set(ctx, []byte("first")); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%v", err)
		}
		if landed && f.Release(t.Context(), nil) != 1 {
			t.Error("the first value was not on its way")
		}
		set(t, r, "second")
		if n := f.Release(t.Context(), nil); !landed && n != 1 {
			t.Error("the first value was not on its way")
		}
		holds(t, f, 1, "second")
		cancel()
	}
}

// A value is written, its answer is lost, and the next owner keeps it. If nobody can read that, the outcome is
// unknown, whatever the store answers to the read.
func TestSetThatCannotTell(t *testing.T) {
	f := faultstore.New(memstore.New(nil), nil)
	a := open(t, f.Client("a"), 1)
	f.SetHook(faultstore.Script(
		faultstore.Rule{Kind: faultstore.Put, Client: "a", Fault: faultstore.Fault{Err: faultstore.ErrReset}},
		faultstore.Rule{Kind: faultstore.Get, Client: "a", Skip: 1, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}},
	))
	f.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
		if op.Client == "a" && op.Kind == faultstore.Put {
			open(t, f.Client("b"), 2)
		}
	})
	if err := a.Set(t.Context(), []byte("9")); !errors.Is(err, store.ErrUnknown) || store.OutcomeOf(err) != store.Unknown || !errors.Is(err, store.ErrDenied) {
		t.Errorf("Set: %v", err)
	}
	holds(t, f, 2, "9")
	// What something else has put there is damage, which stays.
	mem := memstore.New(nil)
	r := open(t, mem, 1)
	fixture.Put(t, mem, key, []byte("something else"))
	if err := r.Set(t.Context(), []byte("9")); !errors.Is(err, fence.ErrCorrupt) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("Set: %v", err)
	}
}

// A register whose object was deleted, or brought back, is lost.
func TestLost(t *testing.T) {
	st := memstore.New(nil)
	r := open(t, st, 3)
	if err := st.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := r.Set(t.Context(), []byte("x")); !errors.Is(err, register.ErrLost) {
		t.Errorf("deleted: %v", err)
	}
	open(t, st, 1)
	if err := r.Set(t.Context(), []byte("x")); !errors.Is(err, register.ErrLost) {
		t.Errorf("brought back: %v", err)
	}
}

func TestBadInput(t *testing.T) {
	st := memstore.New(nil)
	ctx := t.Context()
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"no token":   {second(register.Open(ctx, st, key, fence.Token{}, nil)), register.ErrOptions},
		"no store":   {second(register.Open(ctx, nil, key, fence.NewToken(1), nil)), register.ErrOptions},
		"no key":     {second(register.Open(ctx, st, "", fence.NewToken(1), nil)), store.ErrInvalid},
		"no options": {second(register.Read(ctx, st, key, &register.Options{Settle: &store.SettleOptions{Attempt: -1}})), register.ErrOptions},
		"too long":   {open(t, st, 1).Set(ctx, make([]byte, register.MaxValue+1)), register.ErrOptions},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	for name, body := range map[string]string{"not ours": "{}", "empty": "", "text": "hello"} {
		if _, err := st.Put(ctx, name, []byte(body), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := register.Take(ctx, st, name, nil); !errors.Is(err, fence.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (*register.Options)(nil).Validate(); err != nil {
		t.Error(err)
	}
}

// A record with the greatest numbers is no end of a register: what is set is read. An object that
// is too long to be one is corrupt.
func TestGreatestCount(t *testing.T) {
	st := memstore.New(nil)
	open(t, st, 3)
	body, _, err := store.Read(t.Context(), st, key, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	delete(doc, "checksum")
	doc["writes"] = json.Number("18446744073709551615")
	if body, err = document.Encode(key, doc); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Put(t.Context(), key, body, nil); err != nil {
		t.Fatal(err)
	}
	set(t, open(t, st, 4), "acknowledged")
	holds(t, st, 4, "acknowledged")
	if _, err := st.Put(t.Context(), key, make([]byte, 7<<20), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := register.Take(t.Context(), st, key, nil); !errors.Is(err, fence.ErrCorrupt) {
		t.Errorf("7 MiB: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// The longest value fits, also if JSON writes each byte as six.
func TestLongest(t *testing.T) {
	st := memstore.New(nil)
	r := open(t, st, 1)
	for _, b := range []byte{'x', 0, 0xff} {
		v := bytes.Repeat([]byte{b}, register.MaxValue)
		set(t, r, string(v))
		if s, err := register.Read(t.Context(), st, key, nil); err != nil || !bytes.Equal(s.Value, v) {
			t.Errorf("%d: %v", b, err)
		}
	}
}

var update = flag.Bool("update", false, "write the golden file anew")

// TestGolden: the bytes of a register are a promise.
func TestGolden(t *testing.T) {
	const golden = "testdata/register.json"
	want, err := os.ReadFile(golden)
	if *update {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New(nil)
			r, err := register.Open(t.Context(), st, "register.json", fence.NewToken(7), &register.Options{Clock: clock.Go()})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Set(t.Context(), []byte("orders/v12.parquet")); err != nil {
				t.Fatal(err)
			}
			want, _, err = store.Read(t.Context(), st, "register.json", &store.ReadOptions{Limit: 1 << 20})
			if err == nil {
				err = os.WriteFile(golden, want, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	} else if err != nil {
		t.Fatal(err)
	}
	st := memstore.New(nil)
	if _, err := st.Put(t.Context(), "register.json", want, nil); err != nil {
		t.Fatal(err)
	}
	s, err := register.Read(t.Context(), st, "register.json", nil)
	if err != nil || s.Epoch != 7 || string(s.Value) != "orders/v12.parquet" || s.Writes != 2 || !s.Time.Equal(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", s, err)
	}
}

// watched notes each state of the object.
type watched struct {
	store.Store
	mu      sync.Mutex
	history []register.State
	bodies  []string
}

func (w *watched) Put(ctx context.Context, k string, body []byte, opts *store.PutOptions) (store.Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := w.Store.Put(ctx, k, body, opts)
	if err == nil {
		s, rerr := register.Read(ctx, w.Store, k, nil)
		if rerr != nil {
			return info, rerr
		}
		w.history = append(w.history, s)
		w.bodies = append(w.bodies, string(body))
	}
	return info, err
}

// Random faults, late copies and many owners: epochs rise, a claim keeps the value, and what was
// acknowledged is what the next owner finds.
func TestRandom(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := &watched{Store: memstore.New(&memstore.Options{Clock: clock.Go()})}
			f := faultstore.New(w, &faultstore.Options{Seed: seed, Clock: clock.Go(), Rates: faultstore.Rates{
				Fail: .1, LoseReply: .1, Echo: .05, Late: .1, Duplicate: .1, MaxDelay: time.Second,
			}})
			var mu sync.Mutex
			acked := map[string]bool{}
			var all sync.WaitGroup
			for n := range 4 {
				all.Go(func() {
					st := f.Client(fmt.Sprint(n))
					rng := rand.New(rand.NewPCG(seed, uint64(n)))
					opts := &register.Options{Clock: clock.Go(), Settle: &store.SettleOptions{Clock: clock.Go(), Attempt: 3 * time.Second}}
					for round := range 4 {
						ctx, cancel := clock.WithTimeout(context.Background(), clock.Go(), time.Duration(1+rng.IntN(20))*time.Second, context.DeadlineExceeded)
						r, err := register.Open(ctx, st, key, fence.NewToken(fence.Epoch(1+round+rng.IntN(2))), opts)
						for k := 0; err == nil && k < 5; k++ {
							v := fmt.Sprintf("%d/%d/%d", n, round, k)
							if err = r.Set(ctx, []byte(v)); err == nil {
								mu.Lock()
								acked[v] = true
								mu.Unlock()
							} else if errors.Is(err, store.ErrUnknown) && ctx.Err() == nil {
								err = nil
							}
						}
						cancel()
						if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, fence.ErrFenced) && !errors.Is(err, context.DeadlineExceeded) && err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
					}
				})
			}
			all.Wait()
			f.Release(context.Background(), nil)
			w.check(t, acked)
		})
	}
}

func (w *watched) check(t *testing.T, acked map[string]bool) {
	seen := map[string]bool{}
	for i, s := range w.history {
		v := string(s.Value)
		if i > 0 {
			before := w.history[i-1]
			if s.Epoch < before.Epoch || s.Writes != before.Writes+1 {
				t.Errorf("%+v after %+v", s, before)
			}
			if v != string(before.Value) && seen[v] {
				t.Errorf("value %q came back after %q", v, before.Value)
			}
		}
		seen[v] = true
	}
	for v := range acked {
		if !seen[v] {
			t.Errorf("%q was acknowledged and never written", v)
		}
	}
}
