package groups

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/dirstore" // file://
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// Environment of a process that owns idle partitions.
const (
	idleURL        = "FENCEPOST_BENCH_URL"
	idlePartitions = "FENCEPOST_BENCH_PARTITIONS"
	idleProfile    = "FENCEPOST_BENCH_PROFILE"
)

// footprint is the output of such a process, in bytes.
type footprint struct {
	RSS        int64 // as it is, with what the collector has not yet given back
	Live       int64 // heap and stacks after a collection
	Goroutines int
}

// idle owns all partitions of a group, and measures this process when nothing happens.
func idle(out io.Writer) error {
	st, err := store.Open(context.Background(), os.Getenv(idleURL))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv(idlePartitions))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	all := make(chan struct{})
	var opened atomic.Int64
	go func() {
		ended <- group.Run(ctx, st, &group.RunOptions{
			Group:  &group.Options{Partitions: n, Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1}},
			Writer: &writer.Options{},
		}, func(ctx context.Context, _ *group.Session) error {
			if opened.Add(1) == int64(n) {
				close(all)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	select {
	case <-all:
	case err := <-ended:
		return err
	}
	// The group's own heartbeats go on meanwhile, and the runtime returns what it does not need.
	time.Sleep(30 * time.Second)
	f := footprint{Goroutines: runtime.NumGoroutine()}
	if f.RSS, err = resident(); err != nil {
		return err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.Live = int64(m.HeapAlloc + m.StackInuse)
	if path := os.Getenv(idleProfile); path != "" {
		w, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := pprof.Lookup("heap").WriteTo(w, 0); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	stop()
	<-ended
	return json.NewEncoder(out).Encode(f)
}

// resident is how much memory of this process is in RAM.
func resident() (int64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(b, []byte("VmRSS:"))
	var kb int64
	if _, err := fmt.Sscan(string(rest), &kb); err != nil {
		return 0, fmt.Errorf("/proc/self/status has no VmRSS: %w", err)
	}
	return kb << 10, nil
}

// One process owns many idle partitions, each with an open log.
func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc/self/status")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// start begins such a process, and returns a function that waits for what it has measured.
	start := func(n int) func() footprint {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), role+"=idle", idleURL+"=file://"+filepath.Join(t.TempDir(), "group")+"?create=true", fmt.Sprintf("%s=%d", idlePartitions, n))
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() (f footprint) {
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(out.Bytes(), &f); err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	n := size(1000, 100)
	waitOne := start(1)
	var rss, live []float64
	goroutines := 0
	for range size(5, 1) {
		f := start(n)()
		rss, live, goroutines = append(rss, mib(f.RSS)), append(live, mib(f.Live)), max(goroutines, f.Goroutines)
	}
	one := waitOne()
	mean := func(all []float64) (sum float64) {
		for _, v := range all {
			sum += v / float64(len(all))
		}
		return sum
	}
	what := fmt.Sprintf("a process that owns %s idle partitions, on a directory", result.Number(float64(n)))
	add(t,
		result.Row{Name: what + ": MiB of live heap and stacks", Value: mean(live), Goal: 50, Note: fmt.Sprintf("%d goroutines", goroutines)},
		result.Row{Name: what + ": MiB in RAM, the whole process", Value: mean(rss), Goal: 50, Note: fmt.Sprintf("%.1f to %.1f in %d runs; with one partition %.1f", slices.Min(rss), slices.Max(rss), len(rss), mib(one.RSS))},
	)
}
