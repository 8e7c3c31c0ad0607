package group

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Found writes group.json as Join does, but without a probe of the store.
func Found(t testing.TB, st store.Store, partitions int, validity time.Duration) {
	t.Helper()
	f := format{Version: document.Format, Group: fence.ID{1}, Partitions: partitions, ValidityMS: validity.Milliseconds(), Nonce: newNonce()}
	body, err := f.encode()
	if err == nil {
		_, err = st.Put(context.Background(), "group/group.json", body, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Inspected and Fault are what Inspect finds in the objects of a group.
type (
	Inspected = inspected
	Fault     = fault
)

// Inspect looks at the objects of a group, as Check does.
func Inspect(ctx context.Context, st store.Store) (*Inspected, error) {
	return inspect(ctx, st, &store.SettleOptions{})
}
