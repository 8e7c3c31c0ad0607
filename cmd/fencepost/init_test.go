package main

import (
	"context"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestInitRace: of two inits at once only one says that it has made the log.
func TestInitRace(t *testing.T) {
	mem := memstore.New(nil)
	st := faultstore.New(mem, nil)
	call := func(st store.Store) result {
		var out, errs buffer
		a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(context.Context, string) (store.Store, error) { return st, nil }}
		return result{runWith(t.Context(), a, []string{"init", "s3://bucket/orders"}), out.String(), errs.String()}
	}
	var first result
	met := st.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "tmp/")
	}, func(context.Context) { first = call(mem) })
	second := call(st)
	if first.status != 0 || second.status != 0 || !met() {
		t.Fatal(first, second)
	}
	if !strings.HasPrefix(first.out, "made log ") || second.out != strings.Replace(first.out, "made", "there is already", 1) {
		t.Errorf("%q and %q", first.out, second.out)
	}
}

// TestInitFilesMovedUsage: --files-moved makes no log, so flags that describe one are no flags of it.
func TestInitFilesMovedUsage(t *testing.T) {
	for _, flag := range []string{"--grace=1m", "--max-record=1MiB", "--max-manifest=1MiB", "--sibling=mem://test/x"} {
		r := run(t, "", "init", "--files", memURL(t)+"-files", "--files-moved", flag, newLog(t, memURL(t)+flag[2:5]))
		if r.status != 64 || !strings.Contains(r.err, "--files-moved and --") {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}
