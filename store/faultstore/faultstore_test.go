package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func scripted(rules ...faultstore.Rule) (*faultstore.Store, *memstore.Store) {
	inner := memstore.New(nil)
	return faultstore.New(inner, &faultstore.Options{Hook: faultstore.Script(rules...), Clock: clock.Go()}), inner
}

func put(st store.Store, key, body string, cond store.Condition) error {
	_, err := st.Put(context.Background(), key, []byte(body), &store.PutOptions{If: cond})
	return err
}

// body reads what a store holds under key, "-" for nothing.
func body(t *testing.T, st store.Store, key string) string {
	t.Helper()
	obj, err := st.Get(context.Background(), key, nil)
	if errors.Is(err, store.ErrNotFound) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Body.Close()
	b, err := io.ReadAll(obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPutFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault  faultstore.Fault
		want   store.Outcome
		stored string
	}{
		"none":             {faultstore.Fault{}, store.Applied, "x"},
		"reply lost":       {faultstore.Fault{Err: faultstore.ErrReset}, store.Unknown, "x"},
		"never arrived":    {faultstore.Fault{Drop: true}, store.Unknown, "-"},
		"503":              {faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}, store.Unknown, "-"},
		"500 after":        {faultstore.Fault{Err: faultstore.ErrInternal}, store.Unknown, "x"},
		"409":              {faultstore.Fault{Drop: true, Err: faultstore.ErrConflict}, store.Unknown, "-"},
		"429":              {faultstore.Fault{Drop: true, Err: faultstore.ErrThrottled}, store.Unknown, "-"},
		"denied":           {faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}, store.Rejected, "-"},
		"echo":             {faultstore.Fault{Err: faultstore.ErrEcho}, store.Refused, "x"},
		"crash before":     {faultstore.Fault{Drop: true, Crash: true}, store.Unknown, "-"},
		"crash after":      {faultstore.Fault{Crash: true}, store.Unknown, "x"},
		"cut means little": {faultstore.Fault{Cut: true, Err: faultstore.ErrReset}, store.Unknown, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			st, inner := scripted(faultstore.Rule{Kind: faultstore.Put, Fault: c.fault})
			err := put(st, "k", "x", store.IfAbsent())
			if got := store.OutcomeOf(err); got != c.want {
				t.Errorf("outcome %v (%v), want %v", got, err, c.want)
			}
			if got := body(t, inner, "k"); got != c.stored {
				t.Errorf("the store holds %q, want %q", got, c.stored)
			}
			if err == nil {
				return
			}
			var e *store.Error
			if !errors.As(err, &e) || e.Op != "put" || e.Key != "k" {
				t.Errorf("the error does not say what failed: %v", err)
			}
			if !errors.Is(err, faultstore.ErrInjected) && !errors.Is(err, faultstore.ErrCrashed) {
				t.Errorf("the error does not say that it was made up: %v", err)
			}
		})
	}
}

func TestReadFaults(t *testing.T) {
	all := func(f faultstore.Fault) *faultstore.Store {
		st, inner := scripted(faultstore.Rule{Times: -1, Fault: f})
		for i := range 5 {
			_ = put(inner, fmt.Sprintf("d/%d", i), "0123456789", store.Condition{})
		}
		return st
	}
	list := func(st store.Store) (n int, err error) {
		for _, err := range st.List(t.Context(), "d/", nil) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	t.Run("broken or short body", func(t *testing.T) {
		for want, fault := range map[error]error{faultstore.ErrInjected: faultstore.ErrReset, nil: nil} {
			obj, err := all(faultstore.Fault{Cut: true, Keep: 4, Err: fault}).Get(t.Context(), "d/1", nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(obj.Body)
			if string(b) != "0123" || !errors.Is(err, want) || obj.Size != 10 {
				t.Errorf("%q, %v, size %d", b, err, obj.Size)
			}
		}
	})
	t.Run("listing breaks", func(t *testing.T) {
		if n, err := list(all(faultstore.Fault{Cut: true, Keep: 3})); n != 3 || !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("%d entries, %v", n, err)
		}
		if n, err := list(all(faultstore.Fault{Cut: true, Keep: 5})); n != 5 || err != nil {
			t.Errorf("a cut past the end: %d entries, %v", n, err)
		}
		if n, err := list(all(faultstore.Fault{Err: faultstore.ErrInternal})); n != 0 || err == nil {
			t.Errorf("%d entries, %v", n, err)
		}
	})
	t.Run("dropped get", func(t *testing.T) {
		if _, err := all(faultstore.Fault{Drop: true, Cut: true}).Get(t.Context(), "d/1", nil); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("%v", err)
		}
	})
	t.Run("broken upload", func(t *testing.T) {
		st := all(faultstore.Fault{Cut: true, Keep: 2})
		if _, err := st.Upload(t.Context(), "u", strings.NewReader("0123"), nil); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("%v", err)
		}
		st.SetHook(nil)
		if got := body(t, st, "u"); got != "-" {
			t.Errorf("half an upload is visible: %q", got)
		}
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		st, inner := scripted(faultstore.Rule{Kind: faultstore.Put, Prefix: "held", Fault: faultstore.Fault{Hold: gate}})
		other := st.Client("other")
		result := make(chan error)
		go func() { result <- put(st, "held", "x", store.IfAbsent()) }()
		synctest.Wait()
		st.Crash()
		st.Crash()
		if err := <-result; !errors.Is(err, faultstore.ErrCrashed) || store.OutcomeOf(err) != store.Unknown {
			t.Errorf("the request under way: %v", err)
		}
		n := st.Counts().Of("", "")
		if err := put(st, "k", "x", store.IfAbsent()); !errors.Is(err, faultstore.ErrCrashed) || store.OutcomeOf(err) != store.Rejected {
			t.Errorf("a further request: %v", err)
		}
		if _, err := st.Get(t.Context(), "k", nil); !errors.Is(err, faultstore.ErrCrashed) {
			t.Errorf("a read: %v", err)
		}
		for _, err := range st.List(t.Context(), "", nil) {
			if !errors.Is(err, faultstore.ErrCrashed) {
				t.Errorf("a listing: %v", err)
			}
		}
		if !st.Crashed() || st.Counts().Of("", "") != n {
			t.Error("the dead still make requests")
		}
		if err := put(other, "k", "y", store.IfAbsent()); err != nil || other.Crashed() || body(t, inner, "k") != "y" {
			t.Errorf("another client: %v", err)
		}
		if body(t, inner, "held") != "-" {
			t.Error("a request that had not been sent was applied")
		}
	})
}

// Kills a client at each of its requests in turn.
func TestCrashAtEachRequest(t *testing.T) {
	for k := 1; k <= 4; k++ {
		for _, drop := range []bool{true, false} {
			inner := memstore.New(nil)
			st := faultstore.New(inner, &faultstore.Options{Hook: func(op faultstore.Op) faultstore.Fault {
				return faultstore.Fault{Crash: op.ClientN == k, Drop: op.ClientN == k && drop}
			}})
			told := 0
			for i := range 4 {
				if put(st, fmt.Sprint(i), "", store.IfAbsent()) == nil {
					told++
				}
			}
			want := k
			if drop {
				want = k - 1
			}
			if n, _ := inner.Len(); n != want || told != k-1 {
				t.Errorf("killed at %d, drop %v: %d applied, %d told", k, drop, n, told)
			}
		}
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		st := faultstore.New(inner, &faultstore.Options{Clock: clock.Go(), Hook: faultstore.Script(
			faultstore.Rule{Prefix: "slow", Fault: faultstore.Fault{ReplyDelay: time.Second}})})
		replied := make(chan error, 1)
		go func() { replied <- put(st, "slow", "x", store.IfAbsent()) }()
		synctest.Wait() // applied, its reply is on the way
		resume := st.Pause()
		sent := make(chan error, 1)
		go func() { sent <- put(st, "new", "x", store.IfAbsent()) }()
		time.Sleep(time.Hour)
		if body(t, inner, "slow") != "x" || body(t, inner, "new") != "-" || len(replied)+len(sent) != 0 {
			t.Error("the client is not frozen")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := st.Put(ctx, "given-up", nil, &store.PutOptions{If: store.IfAbsent()}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its context has ended: %v", err)
		}
		resume()
		resume()
		if err := <-replied; err != nil {
			t.Error(err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if body(t, inner, "new") != "x" || body(t, inner, "given-up") != "-" {
			t.Error("what was sent is not what was applied")
		}
	})
}

func TestDelaysAndHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, inner := scripted(
			faultstore.Rule{Prefix: "delay", Fault: faultstore.Fault{Delay: 2 * time.Second, ReplyDelay: 3 * time.Second}},
			faultstore.Rule{Prefix: "hang", Fault: faultstore.Fault{Hang: true}},
			faultstore.Rule{Prefix: "impatient", Fault: faultstore.Fault{ReplyDelay: time.Hour}},
		)
		start := time.Now()
		if err := put(st, "delay", "", store.Condition{}); err != nil || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		for _, key := range []string{"hang", "impatient"} {
			cause := errors.New("no more patience")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
			_, err := st.Put(ctx, key, []byte("x"), &store.PutOptions{If: store.IfAbsent()})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) || store.OutcomeOf(err) != store.Unknown {
				t.Errorf("%s: %v", key, err)
			}
			if got := body(t, inner, key); got != "x" {
				t.Errorf("%s: the store holds %q", key, got)
			}
		}
	})
}

func TestHooksInterleaveAnotherClient(t *testing.T) {
	inner := memstore.New(nil)
	st := faultstore.New(inner, nil)
	other := st.Client("other")
	var seen []string
	st.SetBefore(func(ctx context.Context, op faultstore.Op) {
		if op.Client == "" && op.Kind == faultstore.Put {
			// Between the caller's decision and its request, somebody else is first.
			if _, err := other.Put(ctx, op.Key, []byte("other"), &store.PutOptions{If: store.IfAbsent()}); err != nil {
				t.Error(err)
			}
		}
	})
	st.SetAfter(func(_ context.Context, op faultstore.Op, err error) {
		seen = append(seen, fmt.Sprintf("%d %q.%d %s %s %v", op.N, op.Client, op.ClientN, op.Kind, op.Cond, store.OutcomeOf(err)))
	})
	if err := put(st, "k", "x", store.IfAbsent()); store.OutcomeOf(err) != store.Refused {
		t.Errorf("%v", err)
	}
	want := []string{`2 "other".1 put if absent applied`, `1 "".1 put if absent refused`}
	if !slices.Equal(seen, want) {
		t.Errorf("saw %q", seen)
	}
}

func TestScript(t *testing.T) {
	hook := faultstore.Script(
		faultstore.Rule{Kind: faultstore.Put, Prefix: "lock/", Skip: 1, Times: 2, Fault: faultstore.Fault{Keep: 1}},
		faultstore.Rule{Kind: faultstore.Put, Skip: 3, Fault: faultstore.Fault{Keep: 2}},
		faultstore.Rule{Client: "b", Times: -1, Fault: faultstore.Fault{Keep: 3}},
	)
	var got []int
	for _, op := range []faultstore.Op{
		{Kind: "put", Key: "lock/1"}, {Kind: "put", Key: "data/1"}, {Kind: "get", Key: "lock/1"},
		{Kind: "put", Key: "lock/1"}, {Kind: "put", Key: "lock/2"}, {Kind: "put", Key: "lock/2"},
		{Kind: "get", Client: "b"}, {Kind: "get", Client: "b"}, {Kind: "get", Client: "a"},
	} {
		got = append(got, hook(op).Keep)
	}
	if !slices.Equal(got, []int{0, 0, 0, 1, 1, 0, 3, 3, 0}) {
		t.Errorf("faults %v", got)
	}
}

func TestCountsAndLog(t *testing.T) {
	st := faultstore.New(memstore.New(nil), &faultstore.Options{LogSize: 3, Hook: faultstore.Script(
		faultstore.Rule{Kind: faultstore.Put, Skip: 2, Fault: faultstore.Fault{Drop: true}})})
	_ = put(st, "data/1/1", "", store.IfAbsent())
	_ = put(st, "data/2/1", "", store.IfAbsent())
	_ = put(st, "lock/1", "", store.IfAbsent())
	_, _ = st.Get(t.Context(), "data/1/1", nil)
	_ = st.Delete(t.Context(), "lock/1", "data/1/1")
	_ = st.Delete(t.Context())
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = st.Get(done, "data/1/1", nil) // never sent
	c := st.Counts()
	for _, w := range []struct {
		kind   faultstore.Kind
		prefix string
		n      int
	}{{"put", "", 3}, {"put", "data/", 2}, {"put", "data/1/", 1}, {"", "data/", 3}, {"", "", 5}, {"delete", "lock/", 1}, {"list", "", 0}} {
		if got := c.Of(w.kind, w.prefix); got != w.n {
			t.Errorf("%q %q: %d, want %d", w.kind, w.prefix, got, w.n)
		}
	}
	var log []string
	for _, e := range st.Log() {
		log = append(log, fmt.Sprintf("%d %s %s %v %v", e.Op.N, e.Op.Kind, e.Op.Key, e.Done, e.Err != nil))
	}
	if want := []string{"3 put lock/1 true true", "4 get data/1/1 true false", "5 delete lock/1 true false"}; !slices.Equal(log, want) {
		t.Errorf("log %q", log)
	}
	st.ResetCounts()
	if n := st.Counts().Of("", ""); n != 0 {
		t.Errorf("%d after the reset", n)
	}
}

func TestOpenBodies(t *testing.T) {
	st, inner := scripted(faultstore.Rule{Skip: 1, Fault: faultstore.Fault{Err: faultstore.ErrReset}})
	_ = put(inner, "k", "x", store.Condition{})
	obj, err := st.Get(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Get(t.Context(), "k", nil); err == nil {
		t.Fatal("the fault did not come")
	}
	if n := st.OpenBodies(); n != 1 {
		t.Errorf("%d bodies open", n)
	}
	_ = obj.Body.Close()
	_ = obj.Body.Close()
	if n := st.OpenBodies(); n != 0 {
		t.Errorf("%d bodies open", n)
	}
}

// everything makes all kinds of faults likely.
var everything = faultstore.Rates{Fail: .1, LoseReply: .1, Echo: .05, Late: .1, Duplicate: .05, Break: .1, LateOps: 8}

func TestSameSeedSameFaults(t *testing.T) {
	run := func(seed uint64) (trace []string) {
		st := faultstore.New(memstore.New(&memstore.Options{Seed: 1}), &faultstore.Options{Seed: seed, Rates: everything})
		for _, client := range []*faultstore.Store{st, st.Client("b")} {
			for i := range 200 {
				key := fmt.Sprintf("d/%d", i%20)
				_ = put(client, key, strings.Repeat("x", i), store.IfAbsent())
				if obj, err := client.Get(t.Context(), key, nil); err == nil {
					_, err = io.ReadAll(obj.Body)
					_ = obj.Body.Close()
					trace = append(trace, fmt.Sprint(err))
				}
				for info, err := range client.List(t.Context(), "d/", nil) {
					trace = append(trace, fmt.Sprint(info.Key, err))
				}
				_ = client.Delete(t.Context(), key)
			}
		}
		for _, e := range st.Log() {
			trace = append(trace, fmt.Sprint(e.Op, e.Landed, e.Err))
		}
		return trace
	}
	a := run(1)
	if b := run(1); !slices.Equal(a, b) {
		t.Error("same seed, same calls, other faults")
	}
	if b := run(2); slices.Equal(a, b) {
		t.Error("another seed, the same faults")
	}
}

// All random faults happen, and none breaks the contract: of many creators of
// one key exactly one finds its bytes there, and everybody reads those.
func TestRandomFaultsKeepTheContract(t *testing.T) {
	inner := memstore.New(nil)
	st := faultstore.New(inner, &faultstore.Options{Seed: 3, Rates: everything, LogSize: 1 << 20})
	opts := &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 1 << 20}
	var wg sync.WaitGroup
	winners := make([]int, 100)
	var mu sync.Mutex
	for w := range 4 {
		client := st.Client(fmt.Sprint(w))
		wg.Go(func() {
			for i := range winners {
				key := fmt.Sprintf("k/%d", i)
				_, err := store.Create(t.Context(), client, key, fmt.Appendf(nil, "%d of %d", w, i), &store.WriteOptions{Settle: opts})
				switch store.OutcomeOf(err) {
				case store.Applied:
					mu.Lock()
					winners[i]++
					mu.Unlock()
				case store.Refused:
				default:
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	for i, n := range winners {
		if n != 1 {
			t.Errorf("key %d has %d winners", i, n)
		}
	}
	var failed, lost, echoed, late, landed int
	for _, e := range st.Log() {
		switch f := e.Fault; {
		case e.Landed:
			landed++
		case f.Late != nil && f.Drop:
			late++
		case f.Drop:
			failed++
		case errors.Is(f.Err, store.ErrPrecondition):
			echoed++
		case f.Err != nil:
			lost++
		}
	}
	if failed == 0 || lost == 0 || echoed == 0 || late == 0 || landed == 0 {
		t.Errorf("failed %d, lost %d, echoed %d, late %d, landed %d: some never happened", failed, lost, echoed, late, landed)
	}
	if n := st.OpenBodies(); n != 0 {
		t.Errorf("settling left %d bodies open", n)
	}
}

func TestOptions(t *testing.T) {
	bad := &faultstore.Options{Rates: faultstore.Rates{Fail: 1.1, Late: -1}, LogSize: -1}
	if err := bad.Validate(); !errors.Is(err, store.ErrInvalid) || strings.Count(err.Error(), "must be") != 3 {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("New takes options that are invalid")
		}
	}()
	faultstore.New(memstore.New(nil), bad)
}
