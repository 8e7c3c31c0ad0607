package kubelock

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// State is what a lock's record says.
type State struct {
	// Record is client-go's. Its HolderIdentity is empty if the lock is free.
	Record resourcelock.LeaderElectionRecord
	// Epoch is that of the last term. It is 0 only while the record is being created.
	Epoch fence.Epoch
}

// Read returns the record of the lock with a name, for people and health checks. Unlike [Lock.Get]
// it disturbs no elector. The errors are those of Get.
func Read(ctx context.Context, st store.Store, name string) (State, error) {
	if err := checkName(name); err != nil {
		return State{}, err
	}
	r, _, _, err := read(ctx, st, name, nil)
	if errors.Is(err, store.ErrNotFound) {
		return State{}, fmt.Errorf("%w: %w", apierrors.NewNotFound(leases, name), err)
	}
	if err != nil {
		return State{}, err
	}
	return State{Record: r.LeaderElectionRecord, Epoch: r.own.Epoch}, nil
}
