package kubelock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coordinationv1fake "k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/fence"
)

// server is client-go's fake clientset for the API group of Leases. The whole fake clientset would
// take minutes to compile. Its have versions, like those of an API server: one number for all
// writes, and an update needs the version that it replaces. client-go's fake alone keeps none.
func server() *coordinationv1fake.FakeCoordinationV1 {
	var mu sync.Mutex
	revision := 100
	all := map[string]*coordinationv1.Lease{}
	set := &coordinationv1fake.FakeCoordinationV1{Fake: &clienttesting.Fake{}}
	stamp := func(l *coordinationv1.Lease) (bool, runtime.Object, error) {
		revision++
		l = l.DeepCopy()
		l.ResourceVersion = strconv.Itoa(revision)
		all[l.Name] = l
		return true, l.DeepCopy(), nil
	}
	set.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		resource := a.GetResource().GroupResource()
		switch a := a.(type) {
		case clienttesting.CreateActionImpl:
			l := a.Object.(*coordinationv1.Lease)
			if all[l.Name] != nil {
				return true, nil, apierrors.NewAlreadyExists(resource, l.Name)
			}
			return stamp(l)
		case clienttesting.UpdateActionImpl:
			l := a.Object.(*coordinationv1.Lease)
			switch old := all[l.Name]; {
			case old == nil:
				return true, nil, apierrors.NewNotFound(resource, l.Name)
			case old.ResourceVersion != l.ResourceVersion:
				return true, nil, apierrors.NewConflict(resource, l.Name, errors.New("the object has been modified"))
			}
			return stamp(l)
		case clienttesting.GetActionImpl:
			if l := all[a.Name]; l != nil {
				return true, l.DeepCopy(), nil
			}
			return true, nil, apierrors.NewNotFound(resource, a.Name)
		case clienttesting.DeleteActionImpl:
			revision++
			delete(all, a.Name)
			return true, nil, nil
		}
		return false, nil, nil
	})
	return set
}

// term leads by client-go's own lock until the lease is renewed twice, and returns the tokens
// that it read at its begin and at its end, and the transitions that the Lease had.
func term(t *testing.T, set coordinationv1client.LeasesGetter, who string) (first, last fence.Token, transitions int32) {
	t.Helper()
	leases := set.Leases("ns")
	ctx, cancel := context.WithCancel(quiet(t.Context()))
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Client: set,
			LockConfig: resourcelock.ResourceLockConfig{Identity: who},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer cancel()
				var err error
				if first, err = kubelock.LeaseToken(ctx, leases, name, who); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Second)
				if last, err = kubelock.LeaseToken(ctx, leases, name, who); err != nil {
					t.Error(err)
				}
				lease, err := leases.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				transitions = *lease.Spec.LeaseTransitions
			},
			OnStoppedLeading: func() {},
		},
	})
	return first, last, transitions
}

func TestLeaseTokensRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { tokensRise(t, server(), fence.Token{}) })
}

// tokensRise makes some terms, and returns the last token. All are higher than before.
func tokensRise(t *testing.T, set coordinationv1client.LeasesGetter, before fence.Token) fence.Token {
	t.Helper()
	var transitions []int32
	for i, who := range []string{"a", "b", "a", "a", "c", "c"} {
		if i == 4 { // an operator deletes the Lease
			if err := set.Leases("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		first, last, n := term(t, set, who)
		if first.Epoch() <= before.Epoch() || last.Epoch() < first.Epoch() {
			t.Errorf("%s has %v to %v after %v", who, first, last, before)
		}
		before = last
		transitions = append(transitions, n)
	}
	if transitions[3] <= transitions[4] {
		t.Errorf("leaseTransitions are %v: the documentation says that they begin again after a deletion", transitions)
	}
	return before
}

// A process that dies and comes back with its old name takes its old Lease up again, and then
// leaseTransitions do not change. Tokens do.
func TestLeaseTokenOfANamesake(t *testing.T) {
	set := server()
	leases := set.Leases("ns")
	who, zero := "worker-0", int32(0)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseTransitions: &zero},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old, err := kubelock.LeaseToken(t.Context(), leases, name, who)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil { // the successor renews it
		t.Fatal(err)
	}
	successor, err := kubelock.LeaseToken(t.Context(), leases, name, who)
	if err != nil || successor.Epoch() <= old.Epoch() {
		t.Errorf("%v after %v: %v", successor, old, err)
	}
}

// guard:lease-holder. Without this check: B takes the Lease over from A, and A does not know it yet; A
// reads B's Lease, and gets a token at least as high as B's; the places that B writes to accept A's
// writes.
//
// guard:lease-late-token. Without this check: a process loses the Lease, and holds it again under the
// same identity; a slow goroutine of its old term reads the Lease only now; it gets the token of the
// new term, and writes beside the goroutine of the new term.
func TestLeaseTokenIsRefused(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("deposed"))
	me := "me"
	for _, c := range []struct {
		says    string
		ctx     context.Context
		holder  string
		version string
		who     string
	}{
		{"is held by \"other\"", t.Context(), "other", "7", me},
		{"is held by \"\"", t.Context(), "", "7", me},
		{"identity is empty", t.Context(), "", "7", ""},
		{"context has ended: deposed", ended, me, "7", me},
		{"no number", t.Context(), me, "", me},
		{"no number", t.Context(), me, "0", me},
		{"no number", t.Context(), me, "7a", me},
		{"no number", t.Context(), me, "99999999999999999999", me},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: c.version}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &c.holder}}
		if token, err := kubelock.LeaseToken(c.ctx, fixed{lease}, name, c.who); err == nil || token.Valid() || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, %v", c, token, err)
		}
	}
	if _, err := kubelock.LeaseToken(t.Context(), fixed{&coordinationv1.Lease{}}, name, me); !errors.Is(err, kubelock.ErrNotHolder) {
		t.Errorf("a Lease without a holder: %v", err)
	}
	if _, err := kubelock.LeaseToken(t.Context(), server().Leases("ns"), name, me); !apierrors.IsNotFound(err) {
		t.Errorf("no Lease: %v", err)
	}
}

// fixed always returns one Lease.
type fixed struct{ lease *coordinationv1.Lease }

func (f fixed) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return f.lease, nil
}
