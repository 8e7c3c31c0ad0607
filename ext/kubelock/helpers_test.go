package kubelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

const (
	name     = "orders"
	leaseKey = name + ".lease.json"
	epochKey = name + ".epoch.json"
)

// faulty returns a store whose requests a test can disturb.
func faulty() *faultstore.Store {
	return faultstore.New(memstore.New(&memstore.Options{Clock: clock.Go()}), &faultstore.Options{Clock: clock.Go()})
}

func newLock(t *testing.T, st store.Store, who string, hooks kubelock.Hooks) *kubelock.Lock {
	t.Helper()
	l, err := kubelock.New(st, name, &kubelock.Options{Identity: who, Clock: clock.Go(), Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func record(holder string, transitions int) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now, LeaderTransitions: transitions}
}

// attempt does what an elector does that finds the lock free or lapsed.
func attempt(ctx context.Context, l *kubelock.Lock) error {
	found, _, err := l.Get(ctx)
	if apierrors.IsNotFound(err) {
		return l.Create(ctx, record(l.Identity(), 0))
	}
	if err != nil {
		return err
	}
	transitions := found.LeaderTransitions
	if found.HolderIdentity != l.Identity() {
		transitions++
	}
	return l.Update(ctx, record(l.Identity(), transitions))
}

func win(t *testing.T, st store.Store, l *kubelock.Lock) fence.Epoch {
	t.Helper()
	if err := attempt(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return epoch(t, st, l)
}

// epoch returns the epoch of l's token, and wants the record to say the same.
func epoch(t *testing.T, st store.Store, l *kubelock.Lock) fence.Epoch {
	t.Helper()
	token, err := l.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state, err := kubelock.Read(t.Context(), st, name)
	if err != nil || state.Epoch != token.Epoch() {
		t.Fatalf("the token is of epoch %v, the record of %v: %v", token.Epoch(), state.Epoch, err)
	}
	return token.Epoch()
}

// release does what an elector does that gives the lock up: it reads the record and frees it,
// whoever holds it.
func release(ctx context.Context, l *kubelock.Lock) error {
	found, _, err := l.Get(ctx)
	if err != nil {
		return err
	}
	return l.Update(ctx, record("", found.LeaderTransitions))
}

// quiet is a context without client-go's log.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

func del(t *testing.T, st store.Store, key string) {
	t.Helper()
	if err := st.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}
