package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// liar ignores conditions.
type liar struct{ store.Store }

func (l liar) Put(ctx context.Context, key string, body []byte, _ *store.PutOptions) (store.Info, error) {
	return l.Store.Put(ctx, key, body, nil)
}

// TestProblemWithoutReader: who reads the output does not decide whether there is a problem.
func TestProblemWithoutReader(t *testing.T) {
	url := newLog(t, memURL(t))
	fixture.Put(t, openStore(t, url), layout.LockKey(layout.LockPrefix, 7), []byte("{"))
	for verb, want := range map[string]int{"doctor": 65, "doctor --json": 65, "verify": 65, "probe --json": 1} {
		open := store.Open
		if want == 1 {
			open = func(context.Context, string) (store.Store, error) { return liar{memstore.New(nil)}, nil }
		}
		a := &kit.Kit{Out: broken{syscall.EPIPE}, Err: &buffer{}, Open: open}
		if status := runWith(t.Context(), a, append(strings.Fields(verb), url)); status != want {
			t.Errorf("%s: status %d", verb, status)
		}
	}
}

// TestManualPagesBeside: what else is in the directory is no page.
func TestManualPagesBeside(t *testing.T) {
	dir := t.TempDir()
	var names []string
	if err := json.Unmarshal([]byte(must(t, "", "man", "--json", dir)), &names); err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(names, found, func(name string, e os.DirEntry) bool { return name == e.Name() }) {
		t.Errorf("%q, and there are %v", names, found)
	}
	if err := os.WriteFile(filepath.Join(dir, "git.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := parsed[[]string](t, "man", "--json", dir); !slices.Equal(got, names) {
		t.Errorf("%q", got)
	}
}

// TestLagTriesAgain: the listing of the consumers is repeated if it fails.
func TestLagTriesAgain(t *testing.T) {
	failed := false
	status, errs, _ := faulty(t, func(op faultstore.Op) faultstore.Fault {
		if failed || op.Kind != faultstore.List || op.Key != layout.ConsumerPrefix {
			return faultstore.Fault{}
		}
		failed = true
		return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
	}, "lag")
	if status != 0 || !failed {
		t.Errorf("status %d: %s", status, errs)
	}
}

// TestSiblingElsewhere: a container is of an account. If only one URL names it, the environment may have it for the other.
func TestSiblingElsewhere(t *testing.T) {
	for urls, elsewhere := range map[[2]string]bool{
		{"az://c/a?account=x", "az://c/b?account=y"}:         true,
		{"az://c/a?account=x", "az://c/b"}:                   false,
		{"s3://c/a", "s3://c/b?endpoint=http://127.0.0.1:1"}: true,
	} {
		var errs buffer
		a := &kit.Kit{Err: &errs, Open: func(context.Context, string) (store.Store, error) { return memstore.New(nil), nil }}
		if status := runWith(t.Context(), a, []string{"init", "--sibling", urls[0], urls[1]}); (status == 64) != elsewhere || strings.Contains(errs.String(), "not in the same bucket") != elsewhere {
			t.Errorf("%s: status %d: %s", urls, status, errs.String())
		}
	}
}
