package history

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/store"
)

const segments = 8

// payloads returns the records of some objects of nearly 1 MiB.
func payloads() (all [][][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		all = append(all, events(rng, 1<<20-16<<10))
	}
	return all
}

// prepare makes a log of segments to merge, or of objects to fold. Nothing of it is
// pruned meanwhile.
func prepare(t *testing.T, st store.Store, codec frame.Codec, merge bool, objects int) {
	t.Helper()
	j, records := newJournal(t, st, time.Hour), payloads()
	j.lead()
	for range segments {
		for i := range objects {
			j.commit(codec, records[i%len(records)]...)
		}
		j.done()
		if merge {
			once(t, st, &compactor.Options{NoCompress: codec == frame.Plain, SegmentBytes: 4 << 30, Levels: 1})
		}
	}
}

func once(t *testing.T, st store.Store, o *compactor.Options) compactor.Report {
	t.Helper()
	o.Token = fence.NewToken(1)
	c, err := compactor.New(st, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Once(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listed returns the objects under a prefix, and their total size.
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

// plain reads objects in parts of up to 4 MiB, several at once, and uploads their bytes
// as one object.
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
				body, _, err := store.Read(context.Background(), st, p.key, &store.ReadOptions{Offset: p.at, Length: p.length})
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

// spent is the least real time and the least processor time of an arm.
type spent struct{ took, cpu time.Duration }

// arm measures do, and then calls undo.
func (s *spent) arm(do, undo func()) result.Arm {
	return func() (time.Duration, error) {
		began, cpu := time.Now(), cpuTime()
		do()
		took := time.Since(began)
		*s = spent{least(s.took, took), least(s.cpu, cpuTime()-cpu)}
		undo()
		return took, nil
	}
}

// Merging and folding take about as long as reading and writing the same bytes.
func TestBandwidth(t *testing.T) {
	srv, rounds := serve(t), 1
	if inFull() {
		rounds = 16 // in half of them the compactor goes first
	}
	for _, codec := range []frame.Codec{frame.Plain, frame.Zstd} {
		for _, merge := range []bool{true, false} {
			what, prefix := "folding", "data/"
			if merge {
				what, prefix = "merging", "segment/"
			}
			each := 8 // objects of some MiB
			if codec == frame.Zstd {
				each = 32
			}
			if !inFull() { // only to see that it works
				each /= 4
			}
			name := map[frame.Codec]string{frame.Plain: "plain", frame.Zstd: "compressed"}[codec]
			log, _ := srv.folder(t)
			prepare(t, log, codec, merge, each)
			before, _ := listed(t, log, "")
			all, bytes := listed(t, log, prefix)
			var theirs, ours spent
			undo := func() { restore(t, log, before) }
			reached, err := result.Turns(rounds,
				theirs.arm(func() { plain(t, log, all) }, undo),
				ours.arm(func() {
					r := once(t, log, &compactor.Options{NoCompress: codec == frame.Plain, FanIn: 2, Levels: 30, SegmentBytes: 1 << 30})
					if merge && r.Merged != 8 || !merge && r.Folded < 8*uint64(each) {
						t.Fatalf("%+v", r)
					}
				}, undo))
			if err != nil {
				t.Fatal(err)
			}
			restore(t, log, nil)
			if !inFull() {
				continue
			}
			ratio := reached[0]
			add(t, Row{Name: "compaction: " + what + ", " + name + ": speed beside plain GET + PUT", Value: ratio.Median, Goal: 0.8, More: true, Ratio: true,
				Note: fmt.Sprintf("%s; %.0f MiB stored, at best %.0f MiB/s against %.0f; %.2f ns of CPU a byte against %.2f", ratio.Note, mib(bytes), mib(bytes)/ours.took.Seconds(), mib(bytes)/theirs.took.Seconds(),
					float64(ours.cpu)/float64(bytes), float64(theirs.cpu)/float64(bytes))})
		}
	}
}
