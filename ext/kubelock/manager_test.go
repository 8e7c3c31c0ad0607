package kubelock_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// newManager makes a manager of controller-runtime that leads by a lock, and hands the token of
// each leadership to a Runnable. It has no API server: none of its parts asks one.
func newManager(t *testing.T, st store.Store, who string, tokens chan<- fence.Token) manager.Manager {
	t.Helper()
	l := newLock(t, st, who, kubelock.Hooks{})
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		LeaderElection: true, LeaderElectionResourceLockInterface: l, LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		token, err := l.Token(ctx)
		if err != nil {
			return err
		}
		tokens <- token
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A controller of controller-runtime takes its lock from a store, and nothing else changes
// (its issues #2026 and #3331).
func TestControllerRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faulty()
		tokens := make(chan fence.Token)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 2)
		firstCtx, stop := context.WithCancel(ctx)
		first := newManager(t, st.Client("a"), "a", tokens)
		go func() { ended <- first.Start(firstCtx) }()
		if token := <-tokens; token.Epoch() != 1 {
			t.Errorf("the first manager leads with %v", token)
		}
		second := newManager(t, st.Client("b"), "b", tokens)
		go func() { ended <- second.Start(ctx) }()
		time.Sleep(time.Hour)
		select {
		case token := <-tokens:
			t.Errorf("two managers lead: %v", token)
		case <-second.Elected():
			t.Error("the second manager says that it leads")
		default:
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the first manager ends: %v", err)
		}
		if token := <-tokens; token.Epoch() != 2 {
			t.Errorf("the second manager leads with %v", token)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the second manager ends: %v", err)
		}
		if state, err := kubelock.Read(t.Context(), st, name); err != nil || state.Record.HolderIdentity != "" || state.Epoch != 2 {
			t.Errorf("the lock was not freed: %+v, %v", state, err)
		}
	})
}

// A manager that cannot renew its lease ends, as it does with a Lease of the API server.
func TestControllerRuntimeLosesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faulty()
		tokens := make(chan fence.Token)
		ended := make(chan error, 1)
		a := st.Client("a")
		m := newManager(t, a, "a", tokens)
		go func() { ended <- m.Start(t.Context()) }()
		<-tokens
		a.Crash()
		if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the manager ends: %v", err)
		}
	})
}
