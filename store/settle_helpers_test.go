package store_test

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

// world is a store with scripted faults, seen through a recorder, in virtual
// time.
type world struct {
	*testing.T
	st    *recorder // what the code under test uses
	fault *faultstore.Store
	inner *memstore.Store
	opts  *store.SettleOptions
	write *store.WriteOptions // with opts
}

// inWorld runs a test in a bubble, on a store with these faults.
func inWorld(t *testing.T, rules []faultstore.Rule, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(&memstore.Options{Clock: clock.Go()})
		fault := faultstore.New(inner, &faultstore.Options{Hook: faultstore.Script(rules...), Clock: clock.Go()})
		opts := &store.SettleOptions{Clock: clock.Go()}
		f(&world{T: t, st: &recorder{Store: fault}, fault: fault, inner: inner, opts: opts, write: &store.WriteOptions{Settle: opts}})
		if n := fault.OpenBodies(); n != 0 {
			t.Errorf("%d bodies were left open", n)
		}
	})
}

// on makes a rule for the n-th request of a kind.
func on(kind faultstore.Kind, n int, f faultstore.Fault) faultstore.Rule {
	return faultstore.Rule{Kind: kind, Skip: n - 1, Fault: f}
}

// each makes a rule for all requests of a kind.
func each(kind faultstore.Kind, f faultstore.Fault) faultstore.Rule {
	return faultstore.Rule{Kind: kind, Times: -1, Fault: f}
}

// before lets somebody else act before the n-th request of a kind.
func (w *world) before(kind faultstore.Kind, n int, act func()) {
	w.fault.BeforeFirst(func(op faultstore.Op) bool {
		if op.Kind == kind {
			n--
		}
		return op.Kind == kind && n == 0
	}, func(context.Context) { act() })
}

func (w *world) create(body string) (store.Info, error) {
	return store.Create(w.Context(), w.st, "k", []byte(body), w.write)
}

func (w *world) swap(body string, old store.Version) (store.Info, error) {
	return store.Swap(w.Context(), w.st, "k", []byte(body), old, w.write)
}

// put writes past all faults.
func (w *world) put(body string) store.Info {
	w.Helper()
	info, err := w.inner.Put(context.Background(), "k", []byte(body), nil)
	if err != nil {
		w.Fatal(err)
	}
	return info
}

func (w *world) remove() {
	w.Helper()
	if err := w.inner.Delete(context.Background(), "k"); err != nil {
		w.Fatal(err)
	}
}

// holds checks what is under the key, past all faults; "-" for nothing.
func (w *world) holds(want string) store.Info {
	w.Helper()
	obj, err := w.inner.Get(context.Background(), "k", nil)
	got, info := "-", store.Info{}
	if err == nil {
		b, _ := io.ReadAll(obj.Body)
		got, info = string(b), obj.Info
	} else if !errors.Is(err, store.ErrNotFound) {
		w.Fatal(err)
	}
	if got != want {
		w.Errorf("the store holds %q, want %q", got, want)
	}
	return info
}

// applied checks that a write succeeded and named the version that is there.
func (w *world) applied(info store.Info, err error, body string) {
	w.Helper()
	if err != nil {
		w.Fatalf("outcome %v, want applied: %v", store.OutcomeOf(err), err)
	}
	if there := w.holds(body); info.Version != there.Version || info.Key != "k" || info.Size != int64(len(body)) {
		w.Errorf("the write returned %+v, there is %+v", info, there)
	}
}

// created creates the object, which must be applied.
func (w *world) created() store.Info {
	w.Helper()
	info, err := w.create("mine")
	w.applied(info, err, "mine")
	return info
}

// swapped replaces an old object, which must be applied.
func (w *world) swapped() store.Info {
	w.Helper()
	info, err := w.swap("mine", w.put("old").Version)
	w.applied(info, err, "mine")
	return info
}

// refused checks that a write was refused and shows what is there instead.
func (w *world) refused(err error, found string) *store.ConflictError {
	w.Helper()
	var conflict *store.ConflictError
	if store.OutcomeOf(err) != store.Refused || !errors.Is(err, store.ErrPrecondition) || !errors.As(err, &conflict) {
		w.Fatalf("outcome %v, want refused: %v", store.OutcomeOf(err), err)
	}
	if there := w.holds(found); conflict.Found.Version != there.Version || conflict.Found.Key != "k" {
		w.Errorf("the refusal shows %+v, there is %+v", conflict.Found, there)
	}
	if cut := len(w.st.puts[0].body); found != "-" && w.write.Identity == 0 && string(conflict.Body) != found[:min(cut, len(found))] {
		w.Errorf("the refusal shows %q, there is %q", conflict.Body, found)
	}
	return conflict
}

// unknown checks that a write has no known outcome, because of cause, and that
// nobody can take it for anything else.
func (w *world) unknown(err, cause error) {
	w.Helper()
	if store.OutcomeOf(err) != store.Unknown || !errors.Is(err, store.ErrUnknown) {
		w.Fatalf("outcome %v, want unknown: %v", store.OutcomeOf(err), err)
	}
	if errors.Is(err, store.ErrPrecondition) {
		w.Errorf("an unknown outcome also says that it is a refusal: %v", err)
	}
	if cause != nil && !errors.Is(err, cause) {
		w.Errorf("%v, want the cause %v", err, cause)
	}
	if want := fmt.Sprintf(`put "k": outcome unknown after %d attempts: `, len(w.st.puts)); !strings.Contains(err.Error(), want) {
		w.Errorf("%v; want %s", err, want)
	}
}

// recorder notes what is asked of a store.
type recorder struct {
	store.Store
	mu   sync.Mutex
	puts []sent
	gets []store.GetOptions
}

type sent struct {
	key, body string
	cond      store.Condition
	at        time.Time
}

func (r *recorder) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	r.mu.Lock()
	r.puts = append(r.puts, sent{key, string(body), opts.Condition(), time.Now()})
	r.mu.Unlock()
	return r.Store.Put(ctx, key, body, opts)
}

func (r *recorder) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	var get store.GetOptions
	if opts != nil {
		get = *opts
	}
	r.mu.Lock()
	r.gets = append(r.gets, get)
	r.mu.Unlock()
	return r.Store.Get(ctx, key, opts)
}

// requests checks how many puts and gets there were, and that all puts were the
// same: the same bytes, under the same key, on the same condition.
func (w *world) requests(puts, gets int) {
	w.Helper()
	if len(w.st.puts) != puts || len(w.st.gets) != gets {
		w.Errorf("%d puts and %d gets, want %d and %d", len(w.st.puts), len(w.st.gets), puts, gets)
	}
	w.samePuts()
}

func (w *world) samePuts() {
	w.Helper()
	if slices.ContainsFunc(w.st.puts, func(s sent) bool {
		first := w.st.puts[0]
		return s.key != first.key || s.body != first.body || s.cond != first.cond
	}) {
		w.Errorf("the puts differ: %+v", w.st.puts)
	}
}

var (
	lost       = faultstore.Fault{Err: faultstore.ErrReset}             // applied, reply lost
	dropped    = faultstore.Fault{Drop: true, Err: faultstore.ErrReset} // not applied
	overloaded = faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
	denied     = faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
	echo       = faultstore.Fault{Err: faultstore.ErrEcho}             // applied, answered 412
	liar       = faultstore.Fault{Drop: true, Err: faultstore.ErrEcho} // 412 without reason
)

// late is a request that its client gives up and that lands when released.
func late() faultstore.Fault {
	return faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}}
}
