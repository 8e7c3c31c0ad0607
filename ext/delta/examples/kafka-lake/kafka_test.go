//go:build kafka && unix

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/internal/test/servers"
)

// jarsEnv names the folder with the jars of broker/pom.xml.
const jarsEnv = "FENCEPOST_KAFKA"

var (
	failovers = flag.Int("failovers", 12, "how many workers TestBrokerChaos kills or freezes")
	messages  = flag.Int("messages", 100_000, "how many messages it produces at least")
	summary   = flag.String("report", "", "write what TestBrokerChaos has found to this `file`, as JSON, if it passes")
)

// mostMemory is how much a worker may take. Once a worker took 12 GB, and nobody saw it.
const mostMemory = 2 << 30

// broker is a Kafka broker that is its own controller, on loopback.
type broker struct {
	*testing.T
	addr, dir string
	pid       int
	ended     <-chan struct{}
}

// startBroker starts a broker that ends with the test.
func startBroker(t *testing.T) *broker {
	t.Helper()
	if os.Getenv(jarsEnv) == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set: run make kafka, which installs Kafka", jarsEnv)
		}
		t.Skipf("Kafka is not there: run make kafka")
	}
	b := &broker{T: t, addr: freeAddr(t), dir: t.TempDir()}
	controller := freeAddr(t)
	properties := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
`, b.addr, controller, filepath.Join(b.dir, "data"))
	if err := os.WriteFile(b.properties(), []byte(properties), 0o600); err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	if out, err := b.java("kafka.tools.StorageTool", "format", "-t", base64.RawURLEncoding.EncodeToString(id[:]), "-c", b.properties()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.start()
	t.Cleanup(func() { b.end(syscall.SIGKILL) })
	return b
}

func (b *broker) properties() string { return filepath.Join(b.dir, "server.properties") }

func (b *broker) java(class string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(os.Getenv(jarsEnv), "*"), class}, args...)...)
}

// start starts the broker, and waits until it answers.
func (b *broker) start() {
	b.Helper()
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := b.java("kafka.Kafka", b.properties())
	cmd.Stdout, cmd.Stderr = log, log
	if b.ended, err = servers.Spawn(cmd); err != nil {
		b.Fatal(err)
	}
	b.pid = cmd.Process.Pid
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	for {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
		if err != nil {
			b.Fatal(err)
		}
		try, stop := context.WithTimeout(ctx, 5*time.Second)
		meta, err := kadm.NewClient(client).BrokerMetadata(try)
		stop()
		client.Close()
		if err == nil && len(meta.Brokers) == 1 {
			return
		}
		select {
		case <-b.ended:
			b.fatal(errors.New("the broker has ended"))
		case <-ctx.Done():
			b.fatal(fmt.Errorf("the broker does not answer: %w", err))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// end ends the broker by a signal.
func (b *broker) end(sig syscall.Signal) {
	select {
	case <-b.ended:
	default:
		_ = syscall.Kill(b.pid, sig)
		<-b.ended
	}
}

func (b *broker) fatal(err error) {
	b.Helper()
	out, _ := os.ReadFile(filepath.Join(b.dir, "log"))
	b.Fatalf("%v\nThe broker's last words:\n%s", err, out[max(0, len(out)-4000):])
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestBroker: the story on a real broker and a real S3 server.
func TestBroker(t *testing.T) {
	b := startBroker(t)
	s3 := servers.Start(t, servers.VersityGW)
	cmd := exec.Command(build(t), "-brokers", b.addr, "-store", s3.URL("lake"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.fatal(fmt.Errorf("%w\n%s", err, out))
	}
	t.Logf("%s", out)
}

// TestBrokerChaos: workers are killed and frozen again and again, at the worst moment and at any, and the
// broker is killed and restarted. Each message is in the table once, in each version without a gap.
func TestBrokerChaos(t *testing.T) {
	b := startBroker(t)
	s3 := servers.Start(t, servers.VersityGW)
	seconds := 5 * *failovers // about
	c := config{brokers: b.addr, store: s3.URL("lake"), partitions: 16, rate: max(1000, *messages/seconds)}
	timed, cancel := context.WithTimeout(t.Context(), time.Duration(*failovers)*time.Minute)
	defer cancel()
	ctx, fail := context.WithCancelCause(timed)
	defer fail(nil)
	s, err := newStory(ctx, c, t.Output())
	if err != nil {
		b.fatal(err)
	}
	s.self = build(t)
	t.Cleanup(s.stop)
	m := &meter{most: mostMemory, fail: fail}
	err = s.told((&chaos{story: s, kafka: b, meter: m}).run(ctx))
	if why := context.Cause(ctx); why != nil {
		err = errors.Join(why, err)
	}
	if err != nil {
		b.fatal(err)
	}
	if runtime.GOOS == "linux" && m.peak.Load() == 0 {
		t.Error("the memory of no worker was measured")
	}
	counted := s.engines(ctx, t, "s3://"+s3.Bucket+"/lake/"+s.topic+"/table", append(slices.Clone(s3.Env), "AWS_ENDPOINT_URL="+s3.Endpoint, "AWS_ALLOW_HTTP=true"))
	t.Logf("a worker took %d MB at most", m.peak.Load()/1e6)
	if *summary != "" && !t.Failed() {
		s.summarize(t, m.peak.Load(), counted)
	}
}

// summarize writes the report of a run.
func (s *story) summarize(t *testing.T, peak int64, counted []string) {
	t.Helper()
	// Who runs it from an archive has no commit.
	commit, _ := exec.CommandContext(t.Context(), "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	body, err := json.MarshalIndent(struct {
		Date       string   `json:"date"`
		Commit     string   `json:"commit"`
		Machine    string   `json:"machine"`
		Minutes    float64  `json:"minutes"`
		Partitions int      `json:"partitions"`
		Messages   int      `json:"messages"`
		Failovers  int      `json:"failovers"`
		Owners     int      `json:"owners"`
		Versions   int      `json:"versions"`
		Lost       int      `json:"lost"`
		Doubled    int      `json:"doubled"`
		Changed    int      `json:"changed"`
		Gaps       int      `json:"gaps"`
		Peak       int64    `json:"worker_peak_bytes"`
		Most       int64    `json:"worker_peak_bytes_allowed"`
		Engines    []string `json:"engines_that_count_the_same"`
	}{
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		math.Round(time.Since(s.start).Minutes()*10) / 10, s.partitions, s.verdict.Produced, *failovers, s.report.openings(), len(s.found.versions),
		s.verdict.Lost, s.verdict.Doubled, s.verdict.Changed, s.verdict.Gaps, peak, mostMemory, counted,
	}, "", "  ")
	if err == nil {
		err = os.WriteFile(*summary, append(body, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// meter watches how much memory workers take.
type meter struct {
	most int64
	fail context.CancelCauseFunc
	peak atomic.Int64
}

// watch looks at a process until it ends. What a process has taken at most is known until then only.
func (m *meter) watch(name string, pid int) {
	for {
		peak, ok := peakOf(pid)
		if !ok {
			return
		}
		for old := m.peak.Load(); peak > old && !m.peak.CompareAndSwap(old, peak); old = m.peak.Load() {
		}
		if peak > m.most {
			m.fail(fmt.Errorf("%s takes %d MB of memory; at most %d are right", name, peak/1e6, m.most/1e6))
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// peakOf returns the most bytes that a process has had in memory. It is false if the process has ended,
// or if the system does not tell.
func peakOf(pid int) (int64, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, after, ok := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(after)
	if !ok || len(fields) == 0 {
		return 0, false
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err == nil
}

// TestMemoryIsBounded: a worker that takes too much ends the run with its name.
func TestMemoryIsBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much memory a process has taken")
	}
	ctx, fail := context.WithCancelCause(t.Context())
	m := &meter{most: 1 << 20, fail: fail}
	m.watch("this test", os.Getpid())
	if why := context.Cause(ctx); why == nil || !strings.Contains(why.Error(), "this test takes") || m.peak.Load() < 1<<20 {
		t.Errorf("%v; %d bytes", why, m.peak.Load())
	}
	if peak, ok := peakOf(1 << 30); ok {
		t.Errorf("a process that is not there takes %d bytes", peak)
	}
}

// chaos kills and freezes workers.
type chaos struct {
	*story
	kafka *broker
	*meter
	names []string // of the workers that run
	next  int
	acts  map[string]int
	late  int // commits of zombies that were refused
}

func (c *chaos) run(ctx context.Context) error {
	c.acts = map[string]int{}
	producing, enough := context.WithCancel(ctx)
	var wait sync.WaitGroup
	var produced error
	wait.Go(func() { produced = produce(producing, c.brokers, c.topic, c.rate, c.ledger) })
	defer wait.Wait()
	defer enough()
	for range 3 {
		if err := c.more(); err != nil {
			return err
		}
	}
	if err := c.all(ctx); err != nil {
		return err
	}
	for i := range *failovers {
		if err := c.act(ctx); err != nil {
			return err
		}
		if err := c.all(ctx); err != nil {
			return err
		}
		switch i {
		case *failovers / 3:
			c.restart(syscall.SIGKILL)
		case 2 * *failovers / 3:
			c.restart(syscall.SIGTERM)
		}
	}
	for {
		n, err := c.ledger.count()
		if err != nil {
			return err
		}
		if n >= *messages {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages are produced: %w", n, *messages, ctx.Err())
		}
	}
	enough()
	wait.Wait()
	n, err := c.ledger.count()
	if err = errors.Join(err, produced); err != nil {
		return err
	}
	c.say("%d workers were killed or frozen: %v; %d commits of zombies were refused. %d messages are produced", *failovers, c.acts, c.late, n)
	if err := c.drained(ctx, n); err != nil {
		return err
	}
	c.stop()
	if err := c.publish(ctx); err != nil {
		return err
	}
	if err := c.compare(ctx); err != nil {
		return err
	}
	if err := c.sweep(ctx); err != nil {
		return err
	}
	c.found = newDeltaTable(c.table)
	return c.compare(ctx)
}

// restart restarts the broker while everything goes on.
func (c *chaos) restart(sig syscall.Signal) {
	c.say("the broker is ended (%v) and started again", sig)
	c.kafka.end(sig)
	c.kafka.start()
}

// more starts another worker.
func (c *chaos) more() error {
	c.next++
	name := fmt.Sprintf("w%d", c.next)
	c.names = append(c.names, name)
	if err := c.spawn(name); err != nil {
		return err
	}
	pid := c.procs[name].Process.Pid
	c.feeds.Go(func() { c.watch(name, pid) })
	return nil
}

// all waits until the workers share the partitions. A worker that has ended by itself is replaced, as by a
// supervisor: group.Run ends with group.ErrHung if work takes too long to return.
func (c *chaos) all(ctx context.Context) error {
	for {
		err := c.shared(ctx, c.names...)
		var ended *endedError
		if !errors.As(err, &ended) {
			return err
		}
		c.say("%v", ended)
		c.acts["ended by itself"]++
		_ = c.procs[ended.worker].Wait()
		c.names = slices.DeleteFunc(c.names, func(n string) bool { return n == ended.worker })
		if err := c.more(); err != nil {
			return err
		}
	}
}

// act kills or freezes one worker.
func (c *chaos) act(ctx context.Context) error {
	i := rand.IntN(len(c.names))
	name := c.names[i]
	act := []string{"killed", "killed before a commit", "frozen", "frozen before a commit"}[rand.IntN(4)]
	c.acts[act]++
	others := slices.DeleteFunc(slices.Clone(c.names), func(n string) bool { return n == name })
	var err error
	switch act {
	case "killed":
		err = c.procs[name].Process.Kill()
	case "killed before a commit":
		_, err = c.command(ctx, name, "kill", "dies")
	case "frozen":
		err = c.procs[name].Process.Signal(syscall.SIGSTOP)
	case "frozen before a commit":
		_, err = c.command(ctx, name, "freeze", "freezes")
	}
	if err != nil {
		return err
	}
	c.names = others
	if err := c.all(ctx); err != nil {
		return fmt.Errorf("%s was %s: %w", name, act, err)
	}
	switch act {
	case "killed", "killed before a commit":
		_ = c.procs[name].Wait()
		return c.more()
	case "frozen":
		c.names = append(c.names, name)
		return c.procs[name].Process.Signal(syscall.SIGCONT)
	}
	c.names = append(c.names, name)
	if err := c.procs[name].Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	m, err := c.moment(ctx, name, "answered")
	if err == nil && !m.Refused {
		err = fmt.Errorf("broken promise: the zombie's commit %s was answered: %s", m.Key, m.Text)
	}
	c.late++
	return err
}
