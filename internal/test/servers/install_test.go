//go:build unix

package servers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestInstallBuildsOnceHoweverManyAsk(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	var builds atomic.Int32
	build := func(_ context.Context, dir string) error {
		builds.Add(1)
		// The folder must not be visible before it is complete.
		time.Sleep(50 * time.Millisecond)
		return os.WriteFile(filepath.Join(dir, "program"), []byte("whole"), 0o755)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := install(t.Context(), root, "x-v1", build)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(filepath.Join(dir, "program")); string(b) != "whole" {
				t.Errorf("installed program holds %q, %v", b, err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times, want 1", n)
	}
}

func TestInstallLeavesNothingBehindAFailedBuild(t *testing.T) {
	root := t.TempDir()
	failed := errors.New("no network")
	_, err := install(t.Context(), root, "x-v1", func(_ context.Context, dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			t.Error(err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatalf("got %v, want the build's error", err)
	}
	// A killed build cannot clean up; the next build does.
	killed := filepath.Join(root, "x-v1.tmp-killed")
	if err := os.Mkdir(killed, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := install(t.Context(), root, "x-v1", func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the second build found %v, %v in its folder", entries, err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".tmp-") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

func TestRunEndsTheWholeGroupWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	dir := t.TempDir()
	go func() {
		// The grandchild holds the pipe of run's output open, so run returns only after
		// that has ended too.
		for !exists(filepath.Join(dir, "up")) {
			time.Sleep(time.Millisecond)
		}
		cancel(stop)
	}()
	err := run(ctx, dir, nil, "sh", "-c", "sleep 600 & touch up; wait")
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestRunShowsWhatWasPrinted(t *testing.T) {
	err := run(t.Context(), t.TempDir(), nil, "sh", "-c", "echo no such module; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no such module") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want the status and the output", err)
	}
}
