package kubelock_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/store/memstore"
)

// A lock is not called like an object of a log: its record would be taken for the position of a consumer.
func TestNamesOfLogs(t *testing.T) {
	for _, name := range []string{"consumer/billing", "orders/consumer/billing", "lock/orders", "group/member/x", "data/x"} {
		if _, err := kubelock.New(memstore.New(nil), name, nil); !errors.Is(err, kubelock.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := kubelock.New(memstore.New(nil), "controllers/orders", nil); err != nil {
		t.Error(err)
	}
}
