package group_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/dirstore" // file://
	"github.com/fencepost/fencepost/store/probe"
)

// residentURL is in the environment of a process that TestRunGroupResident starts.
const residentURL = "FENCEPOST_TEST_RESIDENT_URL"

// A process that owns 1,000 idle partitions has at most 50 MiB in RAM, and four goroutines for each. On half
// of the partitions it has worked before that.
func TestRunGroupResident(t *testing.T) {
	if url := os.Getenv(residentURL); url != "" {
		resident(t, url)
		return
	}
	if test.Race {
		t.Skip("the race detector takes memory, too")
	}
	dir := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "fencepost-test-"); err == nil { //nolint:usetesting // there nothing waits for a disk
		dir = shm
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunGroupResident$", "-test.v")
	// What the user set for all Go programs is not measured.
	cmd.Env = append(os.Environ(), residentURL+"=file://"+dir+"/group?create=true", "GOGC=", "GOMEMLIMIT=", "GODEBUG=")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// resident owns all partitions of a group, and measures this process when nothing happens.
func resident(t *testing.T, url string) {
	const partitions, limit = 1000, 50 << 20
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	all := make(chan struct{})
	var opened atomic.Int64
	go func() {
		ended <- group.Run(ctx, st, &group.RunOptions{
			Group: &group.Options{Partitions: partitions, Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1}},
		}, func(ctx context.Context, s *group.Session) error {
			if s.Partition.Number()%2 == 0 {
				if _, err := s.Append(ctx, [][]byte{[]byte("work")}); err != nil {
					return err
				}
			}
			if opened.Add(1) == partitions {
				close(all)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	select {
	case <-all:
	case err := <-ended:
		t.Fatal(err)
	}
	// The runtime gives memory back in the background, and the writers' checkpoints take two intervals.
	rss, goroutines := 0, 0
	for range 120 {
		rss, goroutines = inRAM(t), runtime.NumGoroutine()
		if rss <= limit && goroutines <= 4*partitions {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Logf("%.1f MiB in RAM, %d goroutines", float64(rss)/(1<<20), goroutines)
	if rss > limit {
		t.Errorf("%.1f MiB are in RAM, more than %d", float64(rss)/(1<<20), limit>>20)
	}
	if goroutines > 4*partitions {
		t.Errorf("%d goroutines for %d idle partitions", goroutines, partitions)
	}
	cancel(errStop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// inRAM is how many bytes of this process are in RAM.
func inRAM(t *testing.T) (n int) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte("VmRSS:"))
	if _, err := fmt.Sscan(string(rest), &n); err != nil {
		t.Fatal(err)
	}
	return n << 10
}
