package delta_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// TestRoundHook: each round is told once, also one that publishes nothing or fails.
func TestRoundHook(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		var rounds []delta.Round
		denied := faultstore.Fault{}
		faults := faultstore.New(k.Mem, &faultstore.Options{Hook: func(op faultstore.Op) faultstore.Fault {
			if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "file/_delta_log/") {
				return denied
			}
			return faultstore.Fault{}
		}})
		p := k.publisher(faults, &delta.Options{Hooks: delta.Hooks{Round: func(r delta.Round) { rounds = append(rounds, r) }}})
		k.rows(3)
		k.publish(p)
		k.publish(p)
		k.rows(1)
		denied = faultstore.Fault{Drop: true, Err: &store.Error{Op: "put", Kind: store.ErrDenied}}
		if _, err := p.Publish(t.Context()); !errors.Is(err, store.ErrDenied) {
			t.Fatal(err)
		}
		if len(rounds) != 3 {
			t.Fatalf("%d rounds were told, not 3", len(rounds))
		}
		if r := rounds[0]; r.Err != nil || r.Report.Versions == 0 || r.Report.Files != 1 {
			t.Errorf("%+v", r)
		}
		if r := rounds[1]; r.Err != nil || r.Report.Versions != 0 || r.Report.Sources[0].Published != 1 {
			t.Errorf("%+v", r)
		}
		if !errors.Is(rounds[2].Err, store.ErrDenied) {
			t.Errorf("%+v", rounds[2])
		}
	})
}

// A checkpoint cannot be written. The hook is told, and the next round writes it.
func TestCheckpointThatFails(t *testing.T) {
	for name, evolves := range map[string]bool{"after files": false, "after a schema": true} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				var failed []error
				p := k.publisher(k.Faulty, &delta.Options{Hooks: delta.Hooks{Failed: func(err error) { failed = append(failed, err) }}})
				p.CheckpointEvery(4)
				k.versions(p, 3)
				refuse(k.Faulty, func(op faultstore.Op) bool {
					return op.Kind == faultstore.Put && strings.HasSuffix(op.Key, ".checkpoint.parquet")
				})
				if evolves {
					commitRows(k, []struct{ More string }{{"x"}})
				} else {
					k.rows(1)
				}
				if r := k.publish(p); r.Sources[0].Published != 4 {
					t.Errorf("%+v", r)
				}
				if len(failed) == 0 || !errors.Is(failed[0], store.ErrDenied) {
					t.Errorf("told is %v", failed)
				}
				first := len(failed)
				if k.publish(p); len(failed) == first {
					t.Error("the hook is not told that it failed again")
				}
				k.Faulty.SetHook(nil)
				r := k.publish(p)
				if r.Versions != 0 || !k.Has(checkpointName(r.Version)) || k.hint() != r.Version {
					t.Errorf("%+v; the hint names %d", r, k.hint())
				}
				told := len(failed)
				k.publish(p)
				if len(failed) != told || len(k.Keys("file/_delta_log/")) != int(r.Version)+3 {
					t.Errorf("%v, %v", failed, k.Keys("file/_delta_log/"))
				}
			})
		})
	}
}
