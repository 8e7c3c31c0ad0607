//go:build integration && unix

package engines

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/catalog"
	"github.com/fencepost/fencepost/store"
)

// TestCatalogServesPyIceberg: PyIceberg finds a table through the catalog, and its newest version. What it commits there is
// refused, with the reason.
func TestCatalogServesPyIceberg(t *testing.T) {
	python := os.Getenv(pythonEnv)
	if python == "" {
		t.Skip("Spark alone is there")
	}
	root := filepath.Join(t.TempDir(), "orders", "file")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	table := "file://" + root
	st, err := store.Open(t.Context(), strings.TrimSuffix(table, "/file"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := catalog.New(&catalog.Options{Tables: []catalog.Table{{Namespace: "sales", Name: "orders", Store: st}}})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(s)
	defer served.Close()
	e := start(t, "pyiceberg-rest", python, nil)
	type seen struct {
		Namespaces, Tables []string
		Exists             []bool
		Views              int
		Location           string
		Rows, Sum, Oldest  int
		Snapshots          []int
	}
	ask := func() seen {
		t.Helper()
		var got seen
		if err := e.ask(map[string]any{"do": "seen", "table": served.URL}, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for n := range 2 {
		var made string
		if err := e.ask(map[string]any{"do": "commit", "table": table, "first": n * madeRows}, &made); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(strings.TrimPrefix(made, "file://"))
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("metadata/v%d.metadata.json", 1_000_000_001+n)
		if _, err := store.Create(t.Context(), st, "file/"+key, body, nil); err != nil {
			t.Fatal(err)
		}
		rows := (n + 1) * madeRows
		want := seen{[]string{"sales"}, []string{"sales.orders"}, []bool{true, false, true, false}, 0, table + "/" + key, rows, rows * (rows - 1) / 2, madeRows, []int{n + 1, 1}}
		if got := ask(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s sees %+v, want %+v", e.version, got, want)
		}
	}
	var ended struct{ Early, Late map[string]string }
	if err := e.ask(map[string]any{"do": "refused", "table": served.URL}, &ended); err != nil {
		t.Fatal(err)
	}
	for what, end := range ended.Early {
		if !strings.Contains(end, "Server does not support endpoint") {
			t.Errorf("%s: %s", what, end)
		}
	}
	for what, end := range ended.Late {
		if !strings.HasPrefix(end, "ForbiddenError: ") || !strings.Contains(end, "only the publisher of the log writes its table") {
			t.Errorf("%s, by a client that does not know better: %s", what, end)
		}
	}
	if got := ask(); got.Rows != 2*madeRows {
		t.Errorf("afterwards it sees %+v", got)
	}
	t.Logf("%s; refused: %v", e.version, ended.Late)
}
