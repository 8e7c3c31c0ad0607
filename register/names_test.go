package register_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// guard:own-names. A register under a key of a log's own is refused before any request, from wherever the store is opened.
func TestNamesOfLogs(t *testing.T) {
	f := faultstore.New(memstore.New(nil), nil)
	slot := layout.DataKey(fence.Position{Epoch: 1, Seq: 2})
	within, err := store.Sub(f, "orders/data/"+layout.FormatNumber(1))
	if err != nil {
		t.Fatal(err)
	}
	for key, st := range map[string]store.Store{
		slot: f, "orders/" + slot: f, layout.FormatNumber(2): within, "lock": f, "lock/" + layout.FormatNumber(9) + ".json": f, "consumer/billing.json": f, "format.json": f,
		"tmp/x": f, "group/group.json": f, "orders/partition/000001/" + slot: f, "backup.json": f,
	} {
		fixture.WantErr(t, second(register.Open(t.Context(), st, key, fence.NewToken(1), nil)), register.ErrOptions, "use another key")
		fixture.WantErr(t, second(register.Take(t.Context(), st, key, nil)), register.ErrOptions, key)
	}
	sec, err := store.Sub(f, "lake/sales")
	if err != nil {
		t.Fatal(err)
	}
	for key, st := range map[string]store.Store{"_delta_log/_last_checkpoint": sec, "x/_delta_log/00000000000000000000.json": sec, "grp/partition/000001": f, "grp/compactors": f, "orders/.fencepost/tmp/x": f} {
		fixture.WantErr(t, second(register.Take(t.Context(), st, key, nil)), register.ErrOptions, "use another key")
	}
	if n := f.Counts().Of("", ""); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// An object of another kind is no register, whatever its key, and stays as it is.
func TestOtherKinds(t *testing.T) {
	docs := map[string][]byte{}
	for _, pattern := range []string{"../manifest/testdata/*.json", "../internal/state/testdata/*.json", "../internal/files/testdata/*.json"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			body, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			key := "x/of-" + filepath.Base(name)
			docs[key] = document.Sum(key, body)
		}
	}
	for key, text := range map[string]string{
		"x/lock.json":        `{"format":1,"epoch":7,"state":"held","expired":false,"holder":"a","nonce":"00000000000000000000000000000001","validity_ms":15000,"renew_ms":6000,"renewals":3}`,
		"x/orders.json":      `{"format":1,"holderIdentity":"a","fencepost":{"epoch":5,"lock":"00000000000000000000000000000001","nonce":"00000000000000000000000000000001"}}`,
		"x/half.json":        `{"format":1,"epoch":5,"writes":7,"text":"v"}`,
		"x/of-a-backup.json": `{"format":1,"log":"00000000000000000000000000000001","version":7,"run":"x"}`,
	} {
		docs[key] = document.Sum(key, []byte(text))
	}
	for key, body := range docs {
		st := memstore.New(nil)
		fixture.Put(t, st, key, body)
		if _, err := register.Open(t.Context(), st, key, fence.NewToken(1<<40), nil); !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
			t.Errorf("%s: %v", key, err)
		}
		if now, _, err := store.Read(t.Context(), st, key, &store.ReadOptions{Limit: 1 << 20}); err != nil || string(now) != string(body) {
			t.Errorf("%s was changed, %v", key, err)
		}
	}
}
