package election

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	results "github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var into = results.DirFlag()

// A process of this test is the test binary itself, told by its environment what to be.
const (
	asProcess = "FENCEPOST_BENCH_PROCESS" // the way in which it leads and leaves
	asName    = "FENCEPOST_BENCH_NAME"
	atURL     = "FENCEPOST_BENCH_URL"
)

func TestMain(m *testing.M) {
	if way := os.Getenv(asProcess); way != "" {
		if err := candidate(way); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The ways in which a leader leaves.
const (
	byContext  = "Run, SIGTERM ends its context"
	byResign   = "Run, the work calls Resign, works on until its term is over, and returns nil"
	byReturn   = "Run, the work returns nil"
	byTerm     = "own elector, Term.Resign"
	byOperator = "Run, step-down"
	byKill     = "kill -9, alone, the same name started at once, Reclaim"
	byExec     = "exec, SIGTERM"
	byExecPoll = "exec --poll 100ms, SIGTERM"
	byExecKill = "exec, kill -9, validity 15 s"
)

// asCommand is the command of exec. It writes a line every 5 ms, as appendAll does, but appends nothing.
const asCommand = "command"

// candidate is a process that appends a small record every 5 ms while it leads.
func candidate(way string) error {
	if way == asCommand {
		return command()
	}
	st, err := store.Open(context.Background(), os.Getenv(atURL))
	if err != nil {
		return err
	}
	lo := &leader.Options{Identity: os.Getenv(asName), Reclaim: way == byKill}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch way {
	case byTerm:
		return ownElector(ctx, st, lo)
	case byResign:
		return fencepost.Run(context.Background(), st, &fencepost.Options{Leader: lo}, func(work context.Context, s *fencepost.Session) error {
			defer context.AfterFunc(ctx, s.Resign)()
			// When the term is over, somebody follows closely, and all that was appended is in the history.
			for ctx.Err() == nil || s.Check(0) == nil {
				if err := appendOne(work, s.Writer); err != nil {
					return err
				}
			}
			return nil
		})
	case byReturn:
		return fencepost.Run(context.Background(), st, &fencepost.Options{Leader: lo}, func(work context.Context, s *fencepost.Session) error {
			work, cancel := context.WithCancel(work)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			if err := appendAll(work, s.Writer); work.Err() == nil || ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	return fencepost.Run(ctx, st, &fencepost.Options{Leader: lo}, func(ctx context.Context, s *fencepost.Session) error {
		return appendAll(ctx, s.Writer)
	})
}

// ownElector does by hand what Run does: it elects, opens a writer, and resigns.
func ownElector(ctx context.Context, st store.Store, lo *leader.Options) error {
	e, err := leader.New(st, fencepost.LockPrefix, lo)
	if err != nil {
		return err
	}
	return e.Run(context.WithoutCancel(ctx), func(work context.Context, t *leader.Term) error {
		defer context.AfterFunc(ctx, func() { _ = t.Resign(context.WithoutCancel(ctx)) })()
		w, err := writer.Open(work, st, t.Token(), nil)
		if err != nil {
			return err
		}
		w.Until(work)
		defer w.Close(work)
		return appendAll(work, w)
	})
}

// appendAll prints when each append was acknowledged, by a clock that all processes share.
func appendAll(ctx context.Context, w *writer.Writer) error {
	for ctx.Err() == nil {
		if err := appendOne(ctx, w); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func appendOne(ctx context.Context, w *writer.Writer) error {
	_, err := w.Append(ctx, [][]byte{[]byte("x")})
	if err == nil {
		fmt.Println(uint64(w.Epoch()), int64(clock.System().Now()))
		_ = clock.Sleep(ctx, clock.System(), 5*time.Millisecond)
	}
	return err
}

func command() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		fmt.Println(os.Getenv("FENCEPOST_EPOCH"), int64(clock.System().Now()))
		_ = clock.Sleep(ctx, clock.System(), 5*time.Millisecond)
	}
	return nil
}

// rollout is a log with its processes.
type rollout struct {
	*testing.T
	way, url string
	exec     string // the command line, built
	started  int

	mu      sync.Mutex
	changed sync.Cond
	first   map[fence.Epoch]clock.Instant // acknowledgements, by epoch
	last    map[fence.Epoch]clock.Instant
	leads   map[fence.Epoch]*process
	newest  fence.Epoch
}

type process struct {
	*exec.Cmd
	name  string
	ended chan clock.Instant
}

func (r *rollout) start(name string) *process {
	r.Helper()
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self), name: name, ended: make(chan clock.Instant, 1)}
	as := r.way
	switch r.way {
	case byExec, byExecKill:
		p.Cmd, as = exec.Command(r.exec, "exec", r.url, "--", self), asCommand
	case byExecPoll:
		p.Cmd, as = exec.Command(r.exec, "exec", "--poll", "100ms", r.url, "--", self), asCommand
	}
	p.Env = append(os.Environ(), asProcess+"="+as, asName+"="+name, atURL+"="+r.url)
	var errs strings.Builder
	p.Stderr = &errs
	out, err := p.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := p.Start(); err != nil {
		r.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var epoch fence.Epoch
			var at int64
			if _, err := fmt.Sscan(lines.Text(), &epoch, &at); err != nil {
				continue
			}
			r.mu.Lock()
			if _, ok := r.first[epoch]; !ok {
				r.first[epoch], r.leads[epoch] = clock.Instant(at), p
				r.newest = max(r.newest, epoch)
				r.changed.Broadcast()
			}
			r.last[epoch] = clock.Instant(at)
			r.mu.Unlock()
		}
		err := p.Wait()
		p.ended <- clock.System().Now()
		if err != nil && !strings.Contains(err.Error(), "killed") {
			r.Logf("%s: %v\n%s", name, err, errs.String())
		}
	}()
	return p
}

// next waits for an epoch after one.
func (r *rollout) next(after fence.Epoch) (fence.Epoch, *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.newest <= after {
		r.changed.Wait()
	}
	return r.newest, r.leads[r.newest]
}

// leave makes the leader leave. It reports whether its process ends.
func (r *rollout) leave(p *process) bool {
	r.Helper()
	switch r.way {
	case byOperator:
		st, err := store.Open(r.Context(), r.url)
		if err != nil {
			r.Fatal(err)
		}
		e, err := leader.New(st, fencepost.LockPrefix, nil)
		if err == nil {
			_, err = e.StepDown(r.Context(), nil)
		}
		if err != nil {
			r.Fatal(err)
		}
		return false
	case byKill, byExecKill:
		_ = p.Process.Kill()
	default:
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	return true
}

// measure returns the times from the last acknowledgement of one leader to the first of the
// next, from then to the end of the process before, and from the signal to that first one.
func (r *rollout) measure(rounds int) (gaps, ends, starts []time.Duration) {
	processes := 3
	if r.way == byKill {
		processes = 1
	}
	all := map[*process]bool{}
	launch := func(name string) {
		r.started++
		if name == "" {
			name = fmt.Sprint("p", r.started)
		}
		all[r.start(name)] = true
	}
	for range processes {
		launch("")
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(r.way))))
	epoch, leads := r.next(0)
	for range rounds {
		time.Sleep(3*time.Second + time.Duration(rng.Int64N(int64(6*time.Second)))) // any moment of a heartbeat
		told := clock.System().Now()
		dies := r.leave(leads)
		var ended clock.Instant
		if r.way == byKill {
			ended = <-leads.ended
			launch(leads.name)
		}
		was, old := epoch, leads
		epoch, leads = r.next(epoch)
		if dies && r.way != byKill {
			ended = <-old.ended
			launch("")
		}
		if dies {
			delete(all, old)
		}
		time.Sleep(500 * time.Millisecond) // until all of its lines are read
		r.mu.Lock()
		gaps = append(gaps, r.first[epoch].Sub(r.last[was]))
		starts = append(starts, r.first[epoch].Sub(told))
		if dies && r.way != byKill {
			ends = append(ends, ended.Sub(r.first[epoch]))
		}
		r.mu.Unlock()
	}
	for p := range all {
		_ = p.Process.Signal(syscall.SIGTERM) // a watchdog of exec would survive exec for a moment
	}
	for p := range all {
		if r.exec == "" {
			_ = p.Process.Kill()
		}
		<-p.ended
	}
	return gaps, ends, starts
}

// TestProcesses measures hand-overs of real processes on a real server: three candidates, and
// twelve times each way to leave. With -run TestProcesses/… it measures some of the ways again. The
// page keeps the others if they are of the same day and the same versions.
func TestProcesses(t *testing.T) {
	if *into == "" {
		t.Skip("this test only measures; it needs -results")
	}
	srv := servers.Start(t, servers.VersityGW)
	page := results.New("Hand-over between processes", "handover")
	page.Made = "make bench-handover"
	page.Versions = append(page.Versions, servers.VersityGW.Name+" "+servers.VersityGW.Version)
	before, err := results.Read(*into, "handover")
	if err != nil || before.Date != page.Date || !slices.Equal(before.Versions, page.Versions) {
		before = &results.Page{}
	}
	for i, c := range []struct {
		name, way            string
		p50, longest, signal float64 // goals; signal is that of the longest time from the signal
		rounds               int
	}{
		{"context", byContext, 0.3, 1, 0, 12}, {"resign", byResign, 0.3, 1, 0, 12}, {"return", byReturn, 0.3, 1, 0, 12},
		{"term", byTerm, 0.3, 1, 0, 12}, {"step-down", byOperator, 0.3, 1, 0, 12}, {"kill", byKill, 2, -1, 0, 12},
		{"exec", byExec, 0.5, 1, 0.5, 12}, {"exec-poll", byExecPoll, 0.5, 1, 0.5, 12}, {"exec-kill", byExecKill, -1, -1, 1.15 * 15, 5},
	} {
		by, measured := t.Name()+"/"+c.name, false
		t.Run(c.name, func(t *testing.T) {
			measured = true
			r := &rollout{
				T: t, way: c.way, url: srv.URL(fmt.Sprint("handover", i)),
				first: map[fence.Epoch]clock.Instant{}, last: map[fence.Epoch]clock.Instant{}, leads: map[fence.Epoch]*process{},
			}
			if c.signal != 0 {
				r.exec = build(t)
			}
			r.changed.L = &r.mu
			gaps, ends, starts := r.measure(c.rounds)
			t.Logf("%s: %v, %v, from the signal %v", c.way, gaps, ends, starts)
			note := fmt.Sprintf("%d times", c.rounds)
			row := func(what string, d []time.Duration, q, goal float64) {
				page.Add(by, results.Row{Name: c.way + ": " + what, Value: max(results.Quantile(d, q).Seconds(), 0), Goal: goal, Note: note})
			}
			gap := "seconds from the last acknowledgement to the first of the next leader"
			if r.exec != "" {
				gap = "seconds from the last line of a command to the first of the next"
			}
			row(gap+", p50", gaps, 0.5, c.p50)
			row(gap+", longest", gaps, 1, c.longest)
			if r.exec != "" {
				row("seconds from the signal to the first line of the next command, p50", starts, 0.5, c.signal)
				row("seconds from the signal to the first line of the next command, longest", starts, 1, c.signal)
			} else if len(ends) > 0 {
				row("seconds from then to the end of the process, longest", ends, 1, 1)
			}
		})
		for _, row := range before.Rows {
			if row.By == by && !measured {
				page.Rows = append(page.Rows, row)
			}
		}
	}
	if err := page.Write(*into); err != nil {
		t.Fatal(err)
	}
}

// build builds the command line.
func build(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "fencepost")
	c := exec.Command("go", "build", "-o", to, ".")
	c.Dir = filepath.Join("..", "..", "cmd", "fencepost")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}
