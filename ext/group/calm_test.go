package group

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// telling is a store that knows a rule.
type telling struct{ store.Store }

func (telling) Expiries(context.Context, string) ([]store.Expiry, error) {
	return []store.Expiry{{Rule: "weekly"}}, nil
}

// TestCalmHidesNothing that the store below implements besides.
func TestCalmHidesNothing(t *testing.T) {
	st, ok := store.As[store.ExpiryTeller](&calm{Store: telling{memstore.New(nil)}, clock: clock.Go()})
	if !ok {
		t.Fatal("the rules are hidden")
	}
	if rules, err := st.Expiries(t.Context(), ""); err != nil || len(rules) != 1 {
		t.Errorf("%v, %v", rules, err)
	}
}
