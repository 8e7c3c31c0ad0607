package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// With the rights of a candidate exec begins where nobody has ever led, alone and in a group.
func TestPolicyExec(t *testing.T) {
	t.Setenv(asCommand, "1") // for the watchdog
	dir := t.TempDir()
	t.Setenv("RUNS", dir)
	start := func(t *testing.T, ctx context.Context, st store.Store, args ...string) <-chan int {
		a := &kit.Kit{In: strings.NewReader(""), Out: io.Discard, Err: t.Output(), Open: func(context.Context, string) (store.Store, error) { return st, nil }}
		ended := make(chan int, 1)
		args = append(append([]string{"exec"}, args...), "s3://bucket/"+policyPrefix, "--", "sh", "-c", `touch "$RUNS/partition$FENCEPOST_PARTITION"`)
		go func() { ended <- runWith(ctx, a, args) }()
		return ended
	}
	ran := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	t.Run("alone", func(t *testing.T) {
		st := newPoliced(t, memstore.New(nil), "candidate")
		if status := <-start(t, t.Context(), st); status != 0 || !ran("partition") || len(st.denied) > 0 {
			t.Errorf("status %d, denied %q", status, st.denied)
		}
		if left := keysOf(t, st.Store, "tmp/"); len(left) > 0 {
			t.Errorf("the probe has left %q", left)
		}
	})
	t.Run("group", func(t *testing.T) {
		st := newPoliced(t, memstore.New(nil), "candidate", "group")
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(t, ctx, st, "--partitions", "2")
		eventually(t, "both partitions have run", func() bool { return ran("partition0") && ran("partition1") || len(ended) > 0 })
		cancel() // a member stays when its work is done
		if <-ended; !ran("partition1") || len(st.denied) > 0 {
			t.Errorf("denied %q", st.denied)
		}
	})
}
