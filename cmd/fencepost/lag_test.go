package main

import (
	"fmt"
	"strings"
	"testing"

	lagverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/lag"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
)

// TestLagBearsDamage: a damaged position, and one before a lost object, do not hide the other consumers.
func TestLagBearsDamage(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\n", "append", log)
	must(t, "", "cat", "--consumer", "before", log)
	must(t, "", "cat", "--consumer", "damaged", log)
	must(t, "b\n", "append", log)
	must(t, "c\n", "append", log)
	must(t, "", "cat", "--consumer", "sound", log)
	st := openStore(t, log)
	flip(t, st, layout.ConsumerPrefix+"damaged.json")
	if err := st.Delete(t.Context(), layout.DataKey(fence.Position{Epoch: 2, Seq: 1})); err != nil {
		t.Fatal(err)
	}
	got := must(t, "", "lag", log)
	for _, want := range []string{"consumer before   at 1; 2 records behind, the next one cannot be read: ", "consumer damaged  cannot be read: ", "consumer sound    at 3; 0 records behind\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	d := parsed[lagverb.Doc](t, "lag", "--json", log)
	if c := d.Consumers; len(c) != 3 || c[0].At != 1 || c[0].Behind != 2 || !strings.Contains(c[0].Error, "data/") || !strings.Contains(c[1].Error, "consumer/damaged.json") || c[2].Error != "" {
		t.Errorf("%+v", d)
	}
}

// TestLagOfManyConsumers: it prints the first hundred by name, and how many more there are.
func TestLagOfManyConsumers(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\n", "append", log)
	must(t, "", "cat", "--consumer", "c000", log)
	st := openStore(t, log)
	b, _, err := store.Read(t.Context(), st, layout.ConsumerPrefix+"c000.json", &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 123 {
		fixture.Put(t, st, fmt.Sprintf("%sc%03d.json", layout.ConsumerPrefix, i), b)
	}
	d := parsed[lagverb.Doc](t, "lag", "--json", log)
	if len(d.Consumers) != 100 || d.Consumers[99].Name != "c099" || d.More != 23 {
		t.Errorf("%d consumers and %d more", len(d.Consumers), d.More)
	}
	if got := must(t, "", "lag", log); !strings.Contains(got, "up to 23 consumers more") {
		t.Error(got)
	}
}
