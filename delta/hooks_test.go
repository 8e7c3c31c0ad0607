package delta_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/delta"
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
