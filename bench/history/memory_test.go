package history

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/store"
)

// Environment of a compacting process.
const (
	compactURL   = "FENCEPOST_BENCH_URL"
	compactPlain = "FENCEPOST_BENCH_PLAIN"
)

// footprint is the output of a compacting process.
type footprint struct {
	Live, Process  int64 // peaks, in bytes
	Merged, Folded int
}

// compactAlone compacts a log and measures this process.
func compactAlone(out io.Writer) error {
	st, err := store.Open(context.Background(), os.Getenv(compactURL))
	if err != nil {
		return err
	}
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), NoCompress: os.Getenv(compactPlain) != "", FanIn: 2, Levels: 30, SegmentBytes: 512 << 20})
	if err != nil {
		return err
	}
	stop, peak := make(chan struct{}), make(chan footprint)
	go func() {
		var most footprint
		for {
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(time.Millisecond):
				s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/live:bytes"}}
				metrics.Read(s)
				most.Process = max(most.Process, int64(s[0].Value.Uint64()-s[1].Value.Uint64()))
				most.Live = max(most.Live, int64(s[2].Value.Uint64()))
			}
		}
	}()
	r, err := c.Once(context.Background())
	if err != nil {
		return err
	}
	close(stop)
	most := <-peak
	most.Merged, most.Folded = r.Merged, r.Segments
	return json.NewEncoder(out).Encode(most)
}

// Memory does not grow with the number of bytes that are merged or folded, only with the
// size of the largest object. The runtime keeps as much garbage as its limit allows, so
// the process gets a limit.
func TestMemory(t *testing.T) {
	srv := serve(t)
	total := 16 // MiB
	if inFull() {
		total = 240
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		merge bool
		codec frame.Codec
		size  int // of an object, in MiB
		goal  float64
		name  string
	}{
		{true, frame.Plain, 1, 64, "merging"},
		{false, frame.Plain, 1, 64, "folding objects of 1 MiB"},
		{false, frame.Plain, 4, 64, "folding objects of 4 MiB"},
		{false, frame.Zstd, 4, 64, "folding objects of 4 MiB, compressed"},
		{false, frame.Plain, 16, 64 + 2*16, "folding objects of 16 MiB"},
		{false, frame.Zstd, 16, 64 + 2*16, "folding objects of 16 MiB, compressed"},
		{false, frame.Plain, 60, 64 + 2*60, "folding objects of 60 MiB"},
		{false, frame.Zstd, 60, 64 + 2*60, "folding objects of 60 MiB, compressed"},
	} {
		if c.size > total {
			continue
		}
		log, at := srv.folder(t)
		j := newJournal(t, log, -1)
		records := events(rng, c.size<<20-c.size<<20/32)
		j.lead()
		for n := range total / c.size {
			j.commit(c.codec, records...)
			if n%max(1, 8/c.size) == 0 {
				j.done() // so that few bodies are in memory
			}
			if c.merge && n%(total/segments) == 0 {
				j.done()
				once(t, log, &compactor.Options{NoCompress: true, SegmentBytes: 4 << 30, Levels: 1})
			}
		}
		j.done()
		cmd := self(t, compacts, "GOMEMLIMIT=64MiB", compactURL+"="+at)
		if c.codec == frame.Plain {
			cmd.Env = append(cmd.Env, compactPlain+"=yes")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var f footprint
		if err := json.Unmarshal(out, &f); err != nil {
			t.Fatal(err)
		}
		if c.merge && f.Merged < segments || !c.merge && f.Folded != 1 {
			t.Fatalf("%+v", f)
		}
		if inFull() {
			note := fmt.Sprintf("with GOMEMLIMIT=64MiB; %d MiB in all; the whole process with its garbage %.0f MiB", total, mib(f.Process))
			add(t, Row{Name: "compaction, memory: " + c.name + ": MiB of live heap at most", Value: mib(f.Live), Goal: c.goal, Note: note})
		}
		restore(t, log, nil)
	}
}
