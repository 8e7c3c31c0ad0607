package delta_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

const hintName = "file/_delta_log/_last_checkpoint"

// refuse makes a store refuse some requests.
func refuse(st *faultstore.Store, fits func(op faultstore.Op) bool) {
	st.SetHook(func(op faultstore.Op) faultstore.Fault {
		if fits(op) {
			return faultstore.Fault{Drop: true, Err: &store.Error{Op: "put", Kind: store.ErrDenied}}
		}
		return faultstore.Fault{}
	})
}

// hint returns the version that _last_checkpoint names, or -1 if there is no such object.
func (k *lake) hint() int64 {
	k.Helper()
	if !k.Has(hintName) {
		return -1
	}
	var last struct{ Version int64 }
	if err := json.Unmarshal(k.Body(hintName), &last); err != nil {
		k.Fatal(err)
	}
	return last.Version
}

// A publisher dies after it has written a checkpoint, and before _last_checkpoint names it. Cleanup
// deletes the checkpoint before only when the hint names the newer one.
//
// guard:delta-hint-first. The object _last_checkpoint tells engines the newest Delta checkpoint.
// Without this check: a publisher writes the checkpoint of Delta version 200, and dies before it swaps
// _last_checkpoint; cleanup deletes the checkpoint of version 100, which _last_checkpoint still names;
// engines that start there cannot read the table.
func TestHintBeforeCleanup(t *testing.T) {
	for name, c := range map[string]struct {
		absent, denied bool
		want           int64
	}{
		"it is older":       {want: 8},
		"it is not there":   {absent: true, want: 8},
		"it cannot be read": {denied: true, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				p := k.publisher(k.Faulty, nil)
				p.CheckpointEvery(4)
				k.versions(p, 7)
				refuse(k.Faulty, func(op faultstore.Op) bool { return op.Key == hintName })
				k.rows(1)
				_, _ = p.Publish(t.Context()) // and it is never heard of again
				k.Faulty.SetHook(nil)
				if k.hint() != 4 || !k.Has(checkpointName(8)) {
					t.Fatalf("the hint names %d, so this tests nothing", k.hint())
				}
				if c.absent {
					k.Remove(hintName)
				}
				time.Sleep(8 * day)
				k.rows(1)
				q := k.publisher(k.Faulty, nil)
				if c.denied {
					refuse(k.Faulty, func(op faultstore.Op) bool { return op.Key == hintName })
				}
				if r, err := q.Publish(t.Context()); r.Version != 9 || errors.Is(err, store.ErrDenied) != c.denied {
					t.Fatalf("%+v, %v", r, err)
				}
				if k.hint() != c.want || !k.Has(checkpointName(c.want)) {
					t.Errorf("the hint names %d, want %d; that checkpoint is there: %v", k.hint(), c.want, k.Has(checkpointName(c.want)))
				}
				if got := k.Has(checkpointName(4)); got != c.denied {
					t.Errorf("the checkpoint of version 4 is there: %v", got)
				}
			})
		})
	}
}
