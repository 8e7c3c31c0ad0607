//go:build integration

package see

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// situation is one that alerts are for.
type situation struct {
	name  string
	what  string   // in words
	fires []string // the alerts that must fire in it
	// make begins it. What it returns is called once Prometheus has scraped everything. Nil: it has a test of
	// its own.
	make func(s *stage, name string) (then func())
}

// situations are in the order in which they are made: what takes long begins early.
var situations = []situation{
	{"lapsed", "the only worker of a group is killed", []string{"FencepostMembersLapsed"}, lapsed},
	{"calm", "", nil, calm},
	{"calm-group", "", nil, calmGroup},
	{"alone", "the only writer is killed", []string{"FencepostNobodyLeads"}, alone},
	{"unfolded", "a writer without a compactor", []string{"FencepostNotFolded"}, unfolded},
	{"no-compactor", "the only compactor is killed", []string{"FencepostNoCompactor"}, noCompactor},
	{"old-pin", "a pin stays while a compactor works", []string{"FencepostOldPin"}, oldPin},
	{"lock-free", "the only `exec` is killed", []string{"FencepostLockFree"}, lockFree},
	{"no-exporter", "no exporter runs", []string{"FencepostNoExporter"}, nil},
	{"away", "the directory of a log is moved", []string{"FencepostNotWatched"}, away},
	{"unowned", "all workers of a group leave", []string{"FencepostPartitionsUnowned"}, unowned},
	{"stuck", "the work of a worker does not return when another worker joins", []string{"FencepostPartitionsStuck"}, stuck},
	{"given-up", "the work on a partition fails with each worker", []string{"FencepostPartitionsGivenUp"}, givenUp},
	{"late", "each heartbeat takes more than a second", []string{"FencepostHeartbeatsLate"}, late},
	{"reader-lags", "nobody reads what `cat --follow` prints", []string{"FencepostReaderLags"}, readerLags},
	{"slow", "each PUT of a record takes three seconds", []string{"FencepostCommitsSlow"}, slow},
	{"failing", "each third listing of a reader gets a 500", []string{"FencepostStoreFails"}, failing},
	{"passes", "a compactor cannot store segments", []string{"FencepostPassesFail", "FencepostStoreFails"}, passes},
	{"publisher", "the store of a publisher ends", []string{"FencepostPublishLags", "FencepostSourceLeftOut", "FencepostStoreFails"}, publisher},
	{"left-out", "a file of the table is not Parquet", []string{"FencepostSourceLeftOut", "FencepostPublishLags"}, leftOut},
	{"rewrites", "the function of a rewriter fails", []string{"FencepostRewritesFail"}, rewrites},
	{"damaged", "an object of a verified log is overwritten", []string{"FencepostDamaged"}, damaged},
	{"not-verified", "a verification is never repeated", []string{"FencepostNotVerified"}, notVerified},
	{"verify-fails", "the credentials of a verification have expired", []string{"FencepostVerifyFails", "FencepostNotVerified"}, verifyFails},
	{"flaps", "an operator deposes the leader eight times", []string{"FencepostLeaderFlaps", "FencepostTermsLost"}, flaps},
}

func initialise(t *testing.T, url string) {
	t.Helper()
	if _, err := manifest.Init(t.Context(), at(t, url), &manifest.InitOptions{Probe: quick, Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
}

// some is an input of a few records that stays open.
func some(ctx context.Context) io.Reader {
	r, w := io.Pipe()
	go func() {
		for n := range 10 {
			if _, err := fmt.Fprintf(w, "record %d\n", n); err != nil {
				return
			}
		}
		<-ctx.Done()
		_ = w.Close()
	}()
	return r
}

// validity of locks is short enough for a failover within the ten seconds that alerts wait, and long
// enough for a busy machine.
const validity = "3s"

// leads starts a writer and waits until it leads.
func (s *stage) leads(url string) *process {
	s.Helper()
	p := start(s.T, some(s.Context()), "append", "--validity", validity, url)
	p.says(s.T, "leading in epoch")
	return p
}

func (s *stage) kill(p *process) {
	s.Helper()
	if err := p.Process.Kill(); err != nil {
		s.Fatal(err)
	}
}

// calm has one of everything, and a failover that succeeds.
func calm(s *stage, name string) func() {
	url := s.log(name)
	first := s.scraped(name, some(s.Context()), "append", "--validity", validity, url)
	first.says(s.T, "leading in epoch")
	s.scraped(name, some(s.Context()), "append", "--validity", validity, url)
	s.scraped(name, nil, "compact", "--watch", "--interval", "500ms", "--min-objects", "1", url)
	s.scraped(name, nil, "cat", "--follow", url)
	s.scraped(name, nil, "publish", "--watch", url)
	s.verifies(name, url)
	return func() { s.kill(first) }
}

func alone(s *stage, name string) func() {
	p := s.leads(s.log(name))
	return func() { s.kill(p) }
}

func flaps(s *stage, name string) func() {
	url := s.log(name)
	p := s.scraped(name, some(s.Context()), "append", "--validity", "2s", url)
	return func() {
		for range 8 {
			p.says(s.T, "leading in epoch")
			time.Sleep(time.Second) // until Prometheus has seen it
			_ = start(s.T, nil, "step-down", "--immediate", url).Wait()
		}
	}
}

func unfolded(s *stage, name string) func() {
	start(s.T, endless(s.Context(), name), "append", "--validity", validity, s.log(name)).says(s.T, "leading")
	return nil
}

func noCompactor(s *stage, name string) func() {
	url := s.log(name)
	s.leads(url)
	c := start(s.T, nil, "compact", "--watch", "--validity", validity, url)
	c.says(s.T, "this is the compactor")
	return func() { s.kill(c) }
}

func oldPin(s *stage, name string) func() {
	url := s.log(name)
	start(s.T, endless(s.Context(), name), "append", "--validity", validity, url).says(s.T, "leading")
	start(s.T, nil, "compact", "--watch", "--interval", "200ms", "--min-objects", "1", url).says(s.T, "this is the compactor")
	return func() { _ = start(s.T, nil, "pin", "--name", "forgotten", url).Wait() }
}

func lockFree(s *stage, name string) func() {
	url := "file://" + s.folder(name)
	p := start(s.T, nil, "exec", "--validity", "10s", url, "--", "sleep", "1000")
	s.watched = append(s.watched, url)
	return func() { s.kill(p) }
}

func away(s *stage, name string) func() {
	s.leads(s.log(name))
	return func() {
		if err := os.Rename(filepath.Join(s.root, name), filepath.Join(s.root, "moved")); err != nil {
			s.Fatal(err)
		}
	}
}

// join makes a member of a group of eight partitions, and returns what ends its context.
func (s *stage) join(name, member string, work func(context.Context, *group.Partition) error) (leave func()) {
	s.Helper()
	g, err := group.Join(s.Context(), at(s.T, "file://"+s.folder(name)), &group.Options{
		Partitions: 8, Drain: time.Hour, Identity: member, Probe: quick,
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = g.Run(ctx, work) })
	leave = sync.OnceFunc(func() { cancel(); done.Wait() })
	s.Cleanup(leave)
	return leave
}

func (s *stage) group(name string) { s.watched = append(s.watched, "file://"+s.folder(name)) }

func works(ctx context.Context, _ *group.Partition) error {
	<-ctx.Done()
	return nil
}

func calmGroup(s *stage, name string) func() {
	s.join(name, "one", works)
	leave := s.join(name, "two", works)
	s.group(name)
	return func() {
		s.join(name, "three", works)
		leave()
	}
}

func unowned(s *stage, name string) func() {
	leave := s.join(name, "one", works)
	s.group(name)
	return leave
}

func lapsed(s *stage, name string) func() {
	s.join(name, "first", works)() // makes the group
	url := "file://" + s.folder(name)
	p := start(s.T, nil, "exec", "--group", url, "--", "sleep", "1000")
	s.group(name)
	return func() { s.kill(p) }
}

func stuck(s *stage, name string) func() {
	returns := make(chan struct{})
	s.join(name, "one", func(context.Context, *group.Partition) error {
		<-returns
		return nil
	})
	s.Cleanup(sync.OnceFunc(func() { close(returns) }))
	s.group(name)
	return func() { s.join(name, "two", works) }
}

func givenUp(s *stage, name string) func() {
	fails := func(ctx context.Context, p *group.Partition) error {
		if p.Number() == 0 {
			return errors.New("it fails, for this test")
		}
		return works(ctx, p)
	}
	s.join(name, "one", fails)
	s.join(name, "two", fails)
	s.group(name)
	return nil
}

// stub is an S3 server with faults, and a log.
func (s *stage) stub(name string) (srv *s3stub.Server, url string) {
	s.Helper()
	s.Setenv("AWS_ACCESS_KEY_ID", "AK")
	s.Setenv("AWS_SECRET_ACCESS_KEY", "SK")
	srv = s3stub.Start(nil)
	s.Cleanup(srv.Close)
	url = "s3://bucket/" + name + "?region=us-east-1&endpoint=" + srv.URL()
	initialise(s.T, url)
	return srv, url
}

// puts lets each PUT below a folder have a fault.
func puts(srv *s3stub.Server, below string, f s3stub.Fault) {
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		if r.Op != s3stub.PutObject || !strings.Contains(r.Key, below) {
			return nil
		}
		return &f
	})
}

func late(s *stage, name string) func() {
	srv, url := s.stub(name)
	s.scraped(name, some(s.Context()), "append", "--validity", "10s", url).says(s.T, "leading")
	return func() { puts(srv, "lock/", s3stub.Fault{Delay: 1500 * time.Millisecond}) }
}

func slow(s *stage, name string) func() {
	srv, url := s.stub(name)
	puts(srv, "data/", s3stub.Fault{Delay: 3 * time.Second})
	s.scraped(name, endless(s.Context(), name), "append", url)
	return nil
}

func failing(s *stage, name string) func() {
	srv, url := s.stub(name)
	var n atomic.Int64
	s.scraped(name, nil, "cat", "--follow", url)
	return func() {
		srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
			if r.Op != s3stub.ListObjectsV2 || n.Add(1)%3 != 0 {
				return nil
			}
			return &s3stub.Fault{Status: 500, Code: "InternalError"}
		})
	}
}

// records writes a log, as its leader.
func records(t *testing.T, url string, n, size int) {
	t.Helper()
	w, err := writer.Open(t.Context(), at(t, url), fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := w.Append(t.Context(), [][]byte{make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func passes(s *stage, name string) func() {
	srv, url := s.stub(name)
	records(s.T, url, 1, 10)
	puts(srv, "segment/", s3stub.Fault{Status: 500, Code: "InternalError"})
	s.scraped(name, nil, "compact", "--watch", "--interval", "200ms", "--min-objects", "1", url)
	return nil
}

func readerLags(s *stage, name string) func() {
	_, url := s.stub(name)
	records(s.T, url, 40, 100_000)
	r, w, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { r.Close() })
	defer w.Close()
	s.scrape(name, startWith(s.T, func(c *exec.Cmd) { c.Stdout = w }, "cat", "--follow", "--listen", "127.0.0.1:0", url))
	return nil
}

func publisher(s *stage, name string) func() {
	srv, url := s.stub(name)
	s.scraped(name, nil, "publish", "--watch", url)
	return srv.Close
}

// table is the writer of a log with some files that are not Parquet.
func (s *stage) table(url string) *writer.Writer {
	s.Helper()
	w, err := writer.Open(s.Context(), at(s.T, url), fence.NewToken(1), nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = w.Close(context.Background()) })
	for range 8 {
		f, err := w.CreateFile(s.Context(), ".txt", 0)
		if err == nil {
			_, err = f.Write([]byte("some rows"))
		}
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = w.CommitFiles(s.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	return w
}

func leftOut(s *stage, name string) func() {
	_, url := s.stub(name)
	s.table(url)
	s.scraped(name, nil, "publish", "--watch", url)
	return nil
}

func rewrites(s *stage, name string) func() {
	_, url := s.stub(name)
	w := s.table(url)
	r, err := reader.Open(s.Context(), at(s.T, url), nil)
	if err != nil {
		s.Fatal(err)
	}
	fails := func(context.Context, io.Writer, []rewrite.Input) (uint64, map[string]string, error) {
		return 0, nil, errors.New("it fails, for this test")
	}
	rw, err := rewrite.New(w, r, fails, &rewrite.Options{MinFiles: 4, Interval: time.Second, Hooks: s.measured(name).Rewriter(rewrite.Hooks{})})
	if err != nil {
		s.Fatal(err)
	}
	s.until(func(ctx context.Context) { _ = rw.Run(ctx) })
	return nil
}

// measured are metrics of this process that are scraped for a situation.
func (s *stage) measured(name string) *promhooks.Metrics {
	s.Helper()
	reg := prometheus.NewRegistry()
	m, err := promhooks.New(reg, nil)
	if err != nil {
		s.Fatal(err)
	}
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s.Cleanup(srv.Close)
	s.targets[name] = append(s.targets[name], srv.Listener.Addr().String())
	return m
}

// until runs something until the test ends.
func (s *stage) until(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { run(ctx) })
	s.Cleanup(func() { cancel(); done.Wait() })
}

// verified verifies a log, and returns what does so again.
func (s *stage) verified(name, url string) (again func(context.Context)) {
	s.Helper()
	st, hooks := at(s.T, url), s.measured(name).Verifier(verify.Hooks{})
	again = func(ctx context.Context) { _, _ = verify.Run(ctx, st, &verify.Options{Hooks: hooks}) }
	again(s.Context())
	return again
}

// verifies verifies a log again and again.
func (s *stage) verifies(name, url string) {
	s.Helper()
	again := s.verified(name, url)
	s.until(func(ctx context.Context) {
		for clock.Sleep(ctx, clock.System(), time.Second) == nil {
			again(ctx)
		}
	})
}

func damaged(s *stage, name string) func() {
	srv, url := s.stub(name)
	records(s.T, url, 10, 10)
	s.verifies(name, url)
	return func() { srv.Put("bucket", name+"/"+layout.DataKey(fence.Position{Epoch: 1, Seq: 2}), []byte("rot")) }
}

func notVerified(s *stage, name string) func() {
	_, url := s.stub(name)
	s.verified(name, url)
	return nil
}

// verifyFails has one verification that succeeds, and then one that may not read.
func verifyFails(s *stage, name string) func() {
	srv, url := s.stub(name)
	again := s.verified(name, url)
	return func() {
		srv.SetFault(func(*s3stub.Request) *s3stub.Fault { return &s3stub.Fault{Status: 403, Code: "AccessDenied"} })
		again(s.Context())
	}
}
