package delta_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/ext/delta"
)

// broken is a format whose tables cannot be loaded.
type broken struct{ delta.Format }

type brokenTable struct{ delta.Table }

var errBroken = errors.New("broken")

func (broken) Name() string                                       { return "broken" }
func (broken) Open(delta.Place) (delta.Table, error)              { return brokenTable{}, nil }
func (broken) Check(*delta.Schema, []string, *delta.Footer) error { return nil }
func (brokenTable) Load(context.Context, delta.State, bool) (delta.State, error) {
	return nil, errBroken
}

// TestBrokenFormat: while one format cannot be published, the edits that it lacks do not pile up in memory. The other goes on.
func TestBrokenFormat(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		k.rows(1)
		k.publish(p)
		p = k.publisher(nil, &delta.Options{Formats: []delta.Format{delta.Lake(), broken{}}})
		p.KeepEdits(20)
		for range 50 {
			k.rows(1)
			if r, err := p.Publish(context.Background()); !errors.Is(err, errBroken) || r.Err() != nil || r.Sources[0].Published != r.Sources[0].Edits {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if n := p.Edits(); n > 20 {
			t.Errorf("%d edits are in memory", n)
		}
	})
}
