package probe_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

func TestOptions(t *testing.T) {
	report, err := probe.Run(t.Context(), nowhere{memstore.New(nil)}, &probe.Options{Clients: 1, Rounds: -1, Attempt: -1})
	if !errors.Is(err, store.ErrInvalid) || strings.Count(err.Error(), "must be") != 3 || report == nil {
		t.Errorf("%v, %v", report, err)
	}
}

// nowhere is a store to which no request may be sent.
type nowhere struct{ store.Store }

func (nowhere) Put(context.Context, string, []byte, *store.PutOptions) (store.Info, error) {
	panic("a request")
}
