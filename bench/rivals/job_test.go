package rivals

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store"
	"github.com/fencepost/fencepost/writer"
)

// job is what an arm does. The arm's process reads it from its standard input.
type job struct {
	Endpoint string  `json:"endpoint"`
	Bucket   string  `json:"bucket"`
	Path     string  `json:"path"`
	Clients  int     `json:"clients"`  // each waits for its acknowledgement before it appends again
	Arrivals []int64 `json:"arrivals"` // of records of other clients, in microseconds since the start
	WarmMS   int64   `json:"warm_ms"`
	LongMS   int64   `json:"long_ms"`
	// FlushMS is SlateDB's flush_interval.
	FlushMS int64 `json:"flush_interval_ms"`
}

// seen is what an arm prints at last: the acknowledgements within the measured time, and how
// long they took.
type seen struct {
	Acks int   `json:"acks"`
	P50  int64 `json:"p50_us"`
	P99  int64 `json:"p99_us"`
}

// recordSize is the size of a record in bytes. SlateDB's has a key of 8 bytes in it.
const recordSize = 100

// fenced is Fencepost's arm. It writes with the default options.
func fenced(ctx context.Context, j job) (seen, error) {
	st, err := store.Open(ctx, "s3://"+j.Bucket+"/"+j.Path+"?endpoint="+j.Endpoint+"&region=us-east-1")
	if err != nil {
		return seen{}, err
	}
	w, err := writer.Open(ctx, st, fence.NewToken(1), &writer.Options{
		Init: &manifest.InitOptions{Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}}, // shorter
	})
	if err != nil {
		return seen{}, err
	}
	start := time.Now()
	begin := start.Add(time.Duration(j.WarmMS) * time.Millisecond)
	end := begin.Add(time.Duration(j.LongMS) * time.Millisecond)

	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var count atomic.Int64
	record := func() []byte {
		at := int(count.Add(1)) * recordSize % (len(noise()) - recordSize)
		return noise()[at : at+recordSize]
	}
	// add appends a record. The time counts from since.
	add := func(since time.Time) {
		_, err := w.Append(ctx, [][]byte{record()})
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = err
		} else if !now.Before(begin) && now.Before(end) {
			took = append(took, now.Sub(since))
		}
	}
	var all sync.WaitGroup
	for range j.Clients {
		all.Go(func() {
			for now := time.Now(); now.Before(end); now = time.Now() {
				add(now)
			}
		})
	}
	all.Go(func() {
		for _, at := range j.Arrivals {
			due := start.Add(time.Duration(at) * time.Microsecond)
			time.Sleep(time.Until(due))
			all.Go(func() { add(due) })
		}
	})
	time.Sleep(time.Until(begin))
	fmt.Println("begin")
	time.Sleep(time.Until(end))
	fmt.Println("end")
	all.Wait()
	if err := errors.Join(failed, w.Close(ctx)); err != nil {
		return seen{}, err
	}
	return seen{len(took), result.Quantile(took, 0.5).Microseconds(), result.Quantile(took, 0.99).Microseconds()}, nil
}

// noise are random bytes, which cannot be compressed.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
})

// outcome is what the test saw of a job: rates are numbers a second within the measured time.
type outcome struct {
	acks, puts, gets, lists float64
	p50, p99                float64 // milliseconds
	// arm and endpoint are the processor time that each took, in cores.
	arm, endpoint float64
}

// cpu is the processor time for an acknowledgement, in microseconds.
func (o outcome) cpu() float64 { return o.arm / o.acks * 1e6 }

// run starts an endpoint and an arm.
func run(ctx context.Context, j job, latency s3stub.Latency, arm func(context.Context) *exec.Cmd) (o outcome, err error) {
	srv := s3stub.Start(&s3stub.Options{Latency: latency, RandomETags: true})
	defer srv.Close()
	j.Endpoint, j.Bucket, j.Path = srv.URL(), "bucket", "db"
	text, err := json.Marshal(j)
	if err != nil {
		return o, err
	}
	cmd := arm(ctx)
	cmd.Stdin = bytes.NewReader(text)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return o, err
	}
	if err := cmd.Start(); err != nil {
		return o, err
	}
	var marks []mark
	var last string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last = lines.Text(); last == "begin" || last == "end" {
			m, err := look(srv, cmd.Process.Pid)
			if err != nil {
				return o, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
			}
			marks = append(marks, m)
		}
	}
	if err := cmd.Wait(); err != nil {
		return o, fmt.Errorf("%s: %w: %s", cmd.Path, err, errs.String())
	}
	var s seen
	if err := json.Unmarshal([]byte(last), &s); err != nil || len(marks) != 2 || s.Acks == 0 {
		return o, fmt.Errorf("%s printed %q after %d marks (%w): %s", cmd.Path, last, len(marks), err, errs.String())
	}
	long := float64(j.LongMS) / 1000
	a, b := marks[0], marks[1]
	per := func(op s3stub.Op) float64 { return float64(b.counts.Of(op)-a.counts.Of(op)) / long }
	return outcome{
		acks: float64(s.Acks) / long, puts: per(s3stub.PutObject), gets: per(s3stub.GetObject) + per(s3stub.HeadObject), lists: per(s3stub.ListObjectsV2),
		p50: float64(s.P50) / 1000, p99: float64(s.P99) / 1000,
		arm: (b.arm - a.arm).Seconds() / long, endpoint: (b.endpoint - a.endpoint).Seconds() / long,
	}, nil
}

// mark is the state at an end of the measured time.
type mark struct {
	counts        s3stub.Counts
	arm, endpoint time.Duration // processor time so far
}

func look(srv *s3stub.Server, pid int) (m mark, err error) {
	m.counts = srv.Counts()
	if m.arm, err = processor(strconv.Itoa(pid)); err != nil {
		return m, err
	}
	m.endpoint, err = processor("self")
	return m, err
}

// processor returns the processor time of a process. It needs Linux.
func processor(pid string) (time.Duration, error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // after the name
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%s/stat: %q", pid, b)
	}
	user, err := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, err2) // Linux counts hundredths of a second
}
