package kubelock_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/store/memstore"
)

// A lock is not called like an object of a log: its record would be taken for the position of a consumer.
func TestNamesOfLogs(t *testing.T) {
	for _, name := range []string{"consumer/billing", "orders/consumer/billing", "file/_delta_log/x", "format.json/x"} {
		if _, err := kubelock.New(memstore.New(nil), name, nil); !errors.Is(err, kubelock.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A namespace may be called like a folder of a log: nothing there is called like a lock.
	for _, name := range []string{"controllers/orders", "data/indexer", "group/controller", "group/member/x", "data/group/tmp", "tmp/indexer", "lock/orders", ".fencepost-prod/orders"} {
		lock, err := kubelock.New(memstore.New(nil), name, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		now := metav1.Now()
		if err := lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity(), LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
