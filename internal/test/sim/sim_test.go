package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
)

var (
	seeds  = flag.Int("seeds", 0, "number of histories, spread over processes; 0: a few, always the same")
	seed   = flag.Uint64("seed", 0, "the first seed; 0 with -seeds: from the time of day")
	tell   = flag.Bool("tell", false, "print the story of each history")
	worker = flag.String("worker", "", "internal, i/n@file: this is the i-th of n processes")
)

// sum adds up the results of many histories.
type sum struct {
	Counts
	Histories, Elected, Walked, Colliding, Lingering int
	Failed                                           []uint64
	Processor                                        time.Duration `json:"-"` // processor time of the workers
}

func (s *sum) add(o sum) {
	addAll(reflect.ValueOf(s).Elem(), reflect.ValueOf(o))
	s.Failed = append(s.Failed, o.Failed...)
}

// addAll adds the numbers of one struct to those of another.
func addAll(to, from reflect.Value) {
	for i := range to.NumField() {
		switch f := to.Field(i); {
		case f.Kind() == reflect.Struct:
			addAll(f, from.Field(i))
		case f.CanInt():
			f.SetInt(f.Int() + from.Field(i).Int())
		}
	}
}

func (s *sum) history(r *Result) {
	one := func(is bool) int { return int(flag01(is)) }
	p := r.Plan
	s.add(sum{Counts: r.Counts, Histories: 1, Elected: one(p.Elected), Walked: one(p.Walks), Colliding: one(p.Content), Lingering: one(p.Linger > 0)})
	if r.Err != nil {
		s.Failed = append(s.Failed, p.Seed)
	}
}

const (
	// enough is the number of broken histories after which a worker stops.
	enough = 3
	// portion is how many histories the workers make before new processes replace them.
	// A process keeps some 300 KB for each bubble that it has run, outside of the heap.
	portion = 10_000
)

// TestHistories makes histories and checks every promise. Without flags it makes a few,
// always the same.
func TestHistories(t *testing.T) {
	if *worker != "" {
		work(t)
		return
	}
	began := time.Now()
	var total sum
	switch n := *seeds; {
	case n > 0 && *seed == 0:
		*seed = uint64(began.UnixMilli()) << 12
		fallthrough
	case n > 50:
		for k := 0; k < n && len(total.Failed) < enough; k += portion {
			total.add(spread(t, *seed+uint64(k), min(portion, n-k)))
		}
	default:
		if n == 0 {
			n, *seed = test.Of(30, 60), max(*seed, 1)
		}
		for i := range n {
			total.history(oneHistory(t, *seed+uint64(i)))
		}
	}
	took := time.Since(began)
	t.Logf("%d histories from seed %d in %v, %.0f a second: %d acts, %d of them faults; %d records acknowledged, %d refused, %d unknown; %d histories elected, %d with listings that are not atomic, %d with versions that collide",
		total.Histories, *seed, took.Round(time.Millisecond), float64(total.Histories)/took.Seconds(), total.Steps, total.Faults,
		total.Acked, total.Never, total.Maybe, total.Elected, total.Walked, total.Colliding)
	t.Logf("%d edits acknowledged, %d tables read; %d pins held, %d of them expired; %d files deleted; %d slots hedged, %d histories with linger; %d records truncated; %d further pages of listings",
		total.Edits, total.Looks, total.Held, total.Taken, total.Swept, total.Hedged, total.Lingering, total.Given, total.Pages)
	if total.Processor > 0 {
		t.Logf("%.0f histories per second of a processor", float64(total.Histories)/total.Processor.Seconds())
	}
	never := slices.Contains([]int{total.Acked, total.Never, total.Maybe, total.Faults, total.Edits, total.Looks, total.Held, total.Swept, total.Given, total.Pages}, 0)
	if len(total.Failed) == 0 && (never && total.Histories >= 50 || (total.Taken == 0 || total.Hedged == 0) && total.Histories >= 5000) {
		t.Error("these histories prove nothing: one of the counts above is 0")
	}
	for _, s := range total.Failed {
		tellBroken(t, s)
	}
}

func oneHistory(t *testing.T, seed uint64) *Result {
	t.Helper()
	r := run(t, NewPlan(seed), func(w *world) scheduler { return w.dice }, *tell)
	if *tell {
		t.Logf("%+v\n%s", r.Plan, r.Story)
	}
	return r
}

// tellBroken shrinks a broken history and prints its story.
func tellBroken(t *testing.T, seed uint64) {
	t.Helper()
	full := Run(t, NewPlan(seed))
	if full.Err == nil {
		t.Errorf("seed %d: broke a promise in a worker's process, but not here", seed)
		return
	}
	short := Shrink(t, full, 1500)
	t.Errorf("seed %d breaks a promise. Shrunk from %d acts to %d:\n%s\n%v\n\nTo repeat the whole history: go test ./internal/test/sim -count=1 -v -run '^TestHistories$' -seeds 1 -seed %d -tell\n%+v",
		seed, len(full.acts), len(short.acts), short.Story, short.Err, seed, short.Plan)
}

// spread divides the work among processes of one thread each. That is faster than one
// process with several threads, because a bubble never keeps more than one busy.
func spread(t *testing.T, first uint64, n int) sum {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	procs := min(runtime.NumCPU(), n)
	dir := t.TempDir()
	type done struct {
		sum sum
		out string
		at  string
		err error
	}
	results := make(chan done)
	for i := range procs {
		at := filepath.Join(dir, strconv.Itoa(i))
		cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestHistories$", "-test.count=1", "-test.timeout=0",
			"-seeds", strconv.Itoa(n), "-seed", strconv.FormatUint(first, 10), "-worker", fmt.Sprintf("%d/%d@%s", i, procs, at))
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800")
		go func() {
			out, err := cmd.CombinedOutput()
			d := done{out: string(out), at: at, err: err}
			d.sum.Processor = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			for line := range strings.Lines(d.out) {
				if text, ok := strings.CutPrefix(line, "SUM "); ok {
					d.err = errors.Join(d.err, json.Unmarshal([]byte(text), &d.sum))
				}
			}
			results <- d
		}()
	}
	var total sum
	for range procs {
		d := <-results
		if d.err != nil || d.sum.Histories == 0 {
			last, _ := os.ReadFile(d.at)
			t.Errorf("a worker failed with %v at seed %s:\n%s", d.err, last, d.out)
		}
		total.add(d.sum)
	}
	return total
}

// work does the share of one process and prints the sum.
func work(t *testing.T) {
	var i, n int
	share, at, _ := strings.Cut(*worker, "@")
	if _, err := fmt.Sscanf(share, "%d/%d", &i, &n); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var total sum
	for k := i; k < *seeds && len(total.Failed) < enough; k += n {
		s := *seed + uint64(k)
		// Note the seed, in case this history ends the process.
		if _, err := file.WriteAt(fmt.Appendf(nil, "%-24d", s), 0); err != nil {
			t.Fatal(err)
		}
		total.history(oneHistory(t, s))
	}
	text, err := json.Marshal(total)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintf(out, "SUM %s\n", text)
}

// TestRepeats: the same seed gives the same acts with the same results.
func TestRepeats(t *testing.T) {
	for s := range uint64(max(*seeds, test.Of(8, 25))) {
		p := NewPlan(*seed + s + 1000)
		a, b := Run(t, p), Run(t, p)
		if a.Trace != b.Trace || a.Steps != b.Steps {
			t.Errorf("seed %d gives two different histories", p.Seed)
		}
	}
}
