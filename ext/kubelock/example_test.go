package kubelock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// A controller leads by a lock in a bucket, and writes its result where only its epoch, or a later
// one, can write.
func Example() {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	defer cancel()
	var st store.Store = memstore.New(nil) // or store.Open(ctx, "s3://bucket/controllers")
	lock, err := kubelock.New(st, "orders", &kubelock.Options{Identity: "pod-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	work := func(ctx context.Context) error {
		token, err := lock.Token(ctx)
		if err != nil {
			return err
		}
		result, err := register.Open(ctx, st, "result.json", token, nil)
		if err != nil {
			return err
		}
		fmt.Println(lock.Identity(), "leads in", token)
		return result.Set(ctx, []byte("done"))
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer cancel() // after the work: ReleaseOnCancel frees the lock at once
				if err := work(ctx); err != nil {
					fmt.Println(err)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	state, err := kubelock.Read(context.Background(), st, "orders")
	fmt.Printf("held by %q, last epoch %v, %v\n", state.Record.HolderIdentity, state.Epoch, err)
	// Output:
	// pod-1 leads in epoch 1
	// held by "", last epoch 1, <nil>
}

// A manager of controller-runtime takes its lock from a bucket.
func ExampleNew_controllerRuntime() {
	run := func(ctx context.Context, st store.Store, cfg *rest.Config) error {
		lock, err := kubelock.New(st, "orders", nil)
		if err != nil {
			return err
		}
		mgr, err := manager.New(cfg, manager.Options{
			LeaderElection:                      true,
			LeaderElectionResourceLockInterface: lock,
			LeaderElectionReleaseOnCancel:       true,
		})
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
	_ = run
}
