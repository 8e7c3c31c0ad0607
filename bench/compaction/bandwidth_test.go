package compaction

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

const (
	rounds   = 3
	segments = 8
)

// payloads returns the records of some objects of nearly 1 MiB.
func payloads() (all [][][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		all = append(all, events(rng, 1<<20-16<<10))
	}
	return all
}

// prepare makes a log of segments that are to be merged, or of objects that are to be
// folded, and returns its bytes.
func prepare(t *testing.T, st store.Store, codec fence.Codec, merge bool, objects int) {
	t.Helper()
	j, records := newJournal(t, st), payloads()
	j.lead()
	for range segments {
		for i := range objects {
			j.commit(codec, records[i%len(records)]...)
		}
		j.done()
		if merge {
			once(t, st, &compactor.Options{NoCompress: codec == fence.Plain, SegmentBytes: 4 << 30, Levels: 1})
		}
	}
}

func once(t *testing.T, st store.Store, o *compactor.Options) compactor.Report {
	t.Helper()
	c, err := compactor.New(st, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Once(context.Background(), fence.NewToken(1))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listed returns what lies below a prefix, and its bytes.
func listed(t *testing.T, st store.Store, prefix string) (all []store.Info, bytes int64) {
	t.Helper()
	for info, err := range st.List(t.Context(), prefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		all, bytes = append(all, info), bytes+info.Size
	}
	return all, bytes
}

// plain reads objects, several requests of up to 4 MiB at once, and uploads their
// bytes as one.
func plain(t *testing.T, st store.Store, all []store.Info) {
	t.Helper()
	type part struct {
		key        string
		at, length int64
		body       chan []byte
	}
	var parts []*part
	for _, info := range all {
		for at := int64(0); at < info.Size; at += 4 << 20 {
			parts = append(parts, &part{info.Key, at, min(4<<20, info.Size-at), make(chan []byte, 1)})
		}
	}
	ahead := make(chan struct{}, 8)
	go func() {
		for _, p := range parts {
			ahead <- struct{}{}
			go func() {
				body, _, err := store.ReadRange(context.Background(), st, p.key, store.GetOptions{Offset: p.at, Length: p.length}, p.length, nil)
				if err != nil {
					t.Error(err)
				}
				p.body <- body
			}()
		}
	}()
	r, w := io.Pipe()
	go func() {
		for _, p := range parts {
			body := <-p.body
			<-ahead
			_, _ = w.Write(body)
		}
		w.Close()
	}()
	if _, err := st.Upload(t.Context(), "tmp/"+uuid.NewString(), r, nil); err != nil {
		t.Fatal(err)
	}
}

// Memory does not grow with what is merged or folded. (First, so that nothing is left of
// other tests.) The runtime keeps as much
// garbage as it is let, so it is told the limit, as with GOMEMLIMIT=64MiB.
func TestMemory(t *testing.T) {
	const limit = 64 << 20
	st := endpoint(t)
	for _, merge := range []bool{true, false} {
		what := "folding"
		if merge {
			what = "merging"
		}
		log, err := store.Sub(st, uuid.NewString())
		if err != nil {
			t.Fatal(err)
		}
		prepare(t, log, fence.Plain, merge, 20)
		debug.FreeOSMemory()
		old := debug.SetMemoryLimit(limit)
		stop, peak := make(chan struct{}), make(chan [2]uint64)
		go func() {
			var most [2]uint64
			for {
				select {
				case <-stop:
					peak <- most
					return
				case <-time.After(time.Millisecond):
					now := memory()
					most[0], most[1] = max(most[0], now[0]), max(most[1], now[1])
				}
			}
		}()
		r := once(t, log, &compactor.Options{NoCompress: true, FanIn: 2, Levels: 30, SegmentBytes: 512 << 20})
		if merge && r.Merged != segments || !merge && r.Segments != 1 {
			t.Fatalf("%+v", r)
		}
		close(stop)
		most := <-peak
		debug.SetMemoryLimit(old)
		add(t, Row{Name: what + " 160 MiB: MiB of live heap at most", Value: mib(int64(most[1])), Goal: 64,
			Note: fmt.Sprintf("with GOMEMLIMIT=64MiB; the whole process with its garbage %.0f MiB", mib(int64(most[0])))})
	}
}

// Merging and folding take about as long as reading and writing the same bytes.
func TestBandwidth(t *testing.T) {
	st := endpoint(t)
	for _, codec := range []fence.Codec{fence.Plain, fence.Zstd} {
		for _, merge := range []bool{true, false} {
			what, prefix := "folding", "data/"
			if merge {
				what, prefix = "merging", "segment/"
			}
			each := 8 // of some MiB
			if codec == fence.Zstd {
				each = 32
			}
			name := map[fence.Codec]string{fence.Plain: "plain", fence.Zstd: "compressed"}[codec]
			var ours, theirs, oursCPU, theirsCPU time.Duration
			var bytes int64
			for range rounds {
				log, err := store.Sub(st, uuid.NewString())
				if err != nil {
					t.Fatal(err)
				}
				prepare(t, log, codec, merge, each)
				var all []store.Info
				all, bytes = listed(t, log, prefix)
				began, cpu := time.Now(), cpuTime()
				plain(t, log, all)
				theirs, theirsCPU = least(theirs, time.Since(began)), least(theirsCPU, cpuTime()-cpu)
				began, cpu = time.Now(), cpuTime()
				r := once(t, log, &compactor.Options{NoCompress: codec == fence.Plain, FanIn: 2, Levels: 30, SegmentBytes: 1 << 30})
				ours, oursCPU = least(ours, time.Since(began)), least(oursCPU, cpuTime()-cpu)
				if merge && r.Merged != 8 || !merge && r.Folded < 8*uint64(each) {
					t.Fatalf("%+v", r)
				}
				keys := make([]string, 0, 100)
				for info, err := range log.List(t.Context(), "", nil) {
					if err != nil {
						t.Fatal(err)
					}
					keys = append(keys, info.Key)
				}
				if err := log.Delete(t.Context(), keys...); err != nil {
					t.Fatal(err)
				}
			}
			add(t, Row{Name: what + ", " + name + ": speed beside plain GET + PUT", Value: float64(theirs) / float64(ours), Goal: 0.8, More: true,
				Note: fmt.Sprintf("%.0f MiB stored, %.0f MiB/s against %.0f; %.2f ns of CPU a byte against %.2f", mib(bytes), mib(bytes)/ours.Seconds(), mib(bytes)/theirs.Seconds(),
					float64(oursCPU)/float64(bytes), float64(theirsCPU)/float64(bytes))})
		}
	}
}

// cpuTime is what this process has used, without the endpoint's: the same on a machine
// that has other work to do, but for the caches.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// memory is what the process holds, and what of it was live at the last collection.
func memory() [2]uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return [2]uint64{s[0].Value.Uint64() - s[1].Value.Uint64(), s[2].Value.Uint64()}
}
