//go:build integration && unix

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/integration/servers"
	"github.com/fencepost/fencepost/internal/testkit/sim"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var (
	chaosTime    = flag.Duration("chaos-time", 20*time.Second, "least time of the test on each server")
	chaosLogs    = flag.Int("chaos-logs", 4, "number of logs at once")
	chaosPackets = flag.Bool("chaos-packets", true, "lose, reorder, duplicate and delay packets below TCP, where network namespaces are allowed")
	chaosReport  = flag.String("chaos-report", "", "write the counts to this `file`, as JSON")
	chaosLeast   = flag.Int("chaos-failovers", 40, "number of failovers wanted on each server; the test continues until it is reached, for up to ten times -chaos-time")
	chaosTotal   = flag.Int("chaos-total", 320, "number of failovers required on all servers together; the directory, which comes last and is the fastest, makes up for the others, for up to ten times -chaos-time")
)

// Counts is what happened on one server.
type Counts struct {
	Server  string  `json:"server"`
	Seconds float64 `json:"seconds"`
	// Failovers are epochs opened by another process than the previous one. Reopened are
	// epochs opened by the same process, which had lost its term.
	Failovers int            `json:"failovers"`
	Reopened  int            `json:"reopened"`
	Faults    map[string]int `json:"faults"`
	// Network is "packets", or says why none could be lost. Packets counts them.
	Network string  `json:"network"`
	Packets packets `json:"packets"`
	// Disk says why no directory's disk was ever full.
	Disk         string `json:"disk,omitempty"`
	Acknowledged int    `json:"acknowledged"`
	Refused      int    `json:"refused"`
	Unknown      int    `json:"unknown"`
	Records      int    `json:"records"`
	Digests      int    `json:"digests_of_readers"`
	// All of these must be 0. Broken counts promises that the others do not.
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	Zombies int `json:"zombie_acknowledgements"`
	Broken  int `json:"otherwise_broken"`
}

// TestChaos runs writers, candidates, compactors and readers as processes. Each has its
// own connection to a real server. Processes are killed and frozen, connections cut,
// replies lost, and packets lost, duplicated and reordered. Servers that keep data are
// killed under load, disks are filled, and clocks are an hour off. Each acknowledged
// record must be in the log once, at its offset, in order, and all readers must agree.
func TestChaos(t *testing.T) {
	var all []Counts
	run := func(name string, f func(t *testing.T) Counts) {
		t.Run(name, func(t *testing.T) {
			c := f(t)
			all = append(all, c)
			b, _ := json.Marshal(c) // only numbers and strings, so it cannot fail
			t.Logf("%s", b)
		})
	}
	for _, kind := range servers.Conforming {
		run(kind.Name, func(t *testing.T) Counts {
			s := servers.Start(t, kind)
			return chaos(t, s, kind.Name, func(prefix, addr string) string {
				return fmt.Sprintf("s3://%s/%s?endpoint=http://%s&region=us-east-1", s.Bucket, prefix, addr)
			}, nil)
		})
	}
	wanted := *chaosTotal
	for _, c := range all {
		wanted -= c.Failovers
	}
	*chaosLeast = max(*chaosLeast, wanted)
	before := len(all)
	run("dirstore", chaosOnDisks)
	if len(all) > before && all[before].Failovers < wanted && !t.Failed() { // otherwise -run has left it out
		t.Errorf("%d failovers too few: the test does not test enough", wanted-all[before].Failovers)
	}
	if *chaosReport != "" {
		b, err := json.MarshalIndent(all, "", "  ")
		if err := errors.Join(err, os.WriteFile(*chaosReport, append(b, '\n'), 0o644)); err != nil {
			t.Error(err)
		}
	}
}

// chaosOnDisks is the part on the file system. Where namespaces are allowed, half of the
// logs have their own disks, which are full at times.
func chaosOnDisks(t *testing.T) (c Counts) {
	dir := t.TempDir()
	plain := func(prefix, _ string) string { return "file://" + filepath.Join(dir, prefix) }
	report := filepath.Join(dir, "report.json")
	err := withDisks(t, []string{"-chaos-report=" + report, fmt.Sprint("-chaos-failovers=", *chaosLeast), "-chaos-total=0"}, func(t *testing.T, mount func() *disk) {
		disks := map[string]*disk{}
		for i := 1; i < *chaosLogs; i += 2 {
			disks[prefix(i)] = mount()
		}
		c = chaos(t, nil, "dirstore", func(prefix, addr string) string {
			if d := disks[prefix]; d != nil {
				return d.url(prefix)
			}
			return plain(prefix, addr)
		}, disks)
	})
	if err != nil {
		c = chaos(t, nil, "dirstore", plain, nil)
		c.Disk = err.Error()
	}
	if c.Server == "" { // the test ran in another process
		var all []Counts
		b, err := os.ReadFile(report)
		if err := errors.Join(err, json.Unmarshal(b, &all)); err != nil || len(all) != 1 {
			t.Fatal("the test in its own process left no report: ", err)
		}
		c = all[0]
	}
	return c
}

func prefix(i int) string { return fmt.Sprintf("chaos-%d", i) }

// chaos is the part on one server. A nil server is the file system. disks maps the
// prefixes of some logs to their disks.
func chaos(t *testing.T, s *servers.Server, name string, url func(prefix, addr string) string, disks map[string]*disk) Counts {
	begun := time.Now()
	addr := ""
	if s != nil {
		addr = strings.TrimPrefix(s.Endpoint, "http://")
	}
	var logs []*town
	for i := range *chaosLogs {
		prefix := prefix(i)
		st, err := store.Open(t.Context(), url(prefix, addr))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Grace: manifest.MinGrace}); err != nil {
			t.Fatal(err)
		}
		l := newTown(t, st, prefix, addr, url)
		l.disk = disks[prefix]
		logs = append(logs, l)
	}
	end := make(chan struct{})
	var wg sync.WaitGroup
	for _, l := range logs {
		wg.Go(func() { l.live(end) })
	}
	enough := func() bool {
		since, failovers, used := time.Since(begun), 0, true
		var count packets
		for _, l := range logs {
			n, _ := l.failovers()
			failovers += n
			used = used && l.used()
			count.add(l.sofar())
		}
		// Every kind of trouble must have happened.
		done := used && failovers >= *chaosLeast && (logs[0].gate == nil || count.all())
		return since > *chaosTime && (done || since > 10**chaosTime)
	}
	serverKills := 0
	for calm := 0; !enough(); calm++ {
		time.Sleep(time.Second)
		if s != nil && s.Kind.Durable && calm > 2+rand.IntN(6) {
			s.Kill()
			serverKills++
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
			s.Restart()
			calm = 0
		}
	}
	close(end)
	wg.Wait()
	total := Counts{Server: name, Faults: map[string]int{}}
	if serverKills > 0 {
		total.Faults["server killed"] = serverKills
	}
	for _, l := range logs {
		l.bury() // all processes first, so that check has the server to itself
	}
	for _, l := range logs {
		l.check(&total)
		total.Network = l.network
		total.Packets.add(l.sofar())
	}
	total.Seconds = time.Since(begun).Seconds()
	if logs[0].gate != nil && !total.Packets.all() {
		t.Errorf("%+v: the network did not cause every kind of trouble", total.Packets)
	}
	// A slow server may have fewer failovers; the last server makes up for it.
	if total.Failovers < *chaosLeast/8 && !t.Failed() {
		t.Errorf("%d failovers, want %d: the test does not test enough", total.Failovers, *chaosLeast)
	}
	return total
}

// town is one log and its processes.
type town struct {
	t       *testing.T
	st      store.Store
	prefix  string
	addr    string
	url     func(prefix, addr string) string
	rng     *rand.Rand
	history sim.Told
	gate    *gate // nil: no packets to lose
	network string
	ways    sync.WaitGroup // those that are still open
	disk    *disk          // nil: no disk to fill

	mu      sync.Mutex
	born    int
	people  map[*citizen]bool
	leader  *citizen
	leaders map[uint64]string // epoch → process
	told    []acknowledged
	acked   uint64 // offset after the last acknowledged record
	faults  map[string]int
	full    time.Time // until when the disk is full
	digests []digested
	packets packets // of the ways that have ended
	broken  []string
	journal io.Writer
}

// citizen is one process.
type citizen struct {
	name, role string
	cmd        *exec.Cmd
	stderr     *lockedBuffer
	way        *way // nil on a file system
	ended      chan struct{}
	wake       time.Time // until when it is frozen
	heal       time.Time // until when its weather is bad
}

func newTown(t *testing.T, st store.Store, prefix, addr string, url func(prefix, addr string) string) *town {
	seed := uint64(time.Now().UnixNano())
	t.Logf("%s: seed %d", prefix, seed)
	journal, err := os.Create(filepath.Join(t.ArtifactDir(), prefix+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = journal.Close() })
	v := &town{
		t: t, st: st, prefix: prefix, addr: addr, url: url, rng: rand.New(rand.NewPCG(seed, 1)),
		people: map[*citizen]bool{}, leaders: map[uint64]string{}, faults: map[string]int{}, journal: journal,
	}
	v.network = "none"
	if addr != "" {
		v.gate, v.network = openNetwork(t)
	}
	t.Cleanup(v.bury)
	return v
}

// populace is the number of processes of each role.
var populace = map[string]int{"writer": 3, "compactor": 2, "reader": 1}

// live keeps all processes running, and harms one of them now and then.
func (v *town) live(end <-chan struct{}) {
	for next := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-end:
			return
		default:
		}
		v.populate()
		v.relent(time.Now())
		if time.Now().After(next) {
			v.harm()
			next = time.Now().Add(time.Duration(200+v.rng.IntN(600)) * time.Millisecond)
		}
	}
}

// failovers returns how many epochs were opened by another process than the previous one,
// and how many by the same.
func (v *town) failovers() (others, same int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	last := ""
	for _, e := range slices.Sorted(maps.Keys(v.leaders)) {
		switch v.leaders[e] {
		case last:
			same++
		default:
			others++
		}
		last = v.leaders[e]
	}
	return max(others-1, 0), same
}

// used reports whether records were acknowledged, and read.
func (v *town) used() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.acked > 0 && len(v.digests) > 0
}

func (v *town) populate() {
	v.mu.Lock()
	defer v.mu.Unlock()
	count := map[string]int{}
	for c := range v.people {
		select {
		case <-c.ended:
			delete(v.people, c)
			if v.leader == c {
				v.leader = nil
			}
		default:
			count[c.role]++
		}
	}
	for role, n := range populace {
		for range n - count[role] {
			v.start(role)
		}
	}
}

// start starts a process. The caller holds mu.
func (v *town) start(role string) {
	v.born++
	c := &citizen{name: fmt.Sprintf("%s-%d", role, v.born), role: role, stderr: &lockedBuffer{}, ended: make(chan struct{})}
	fail := func(err error) { v.broken = append(v.broken, err.Error()) }
	addr := v.addr
	if addr != "" {
		var err error
		if c.way, err = newWay(v.t, v.gate, v.born, v.rng, addr); err != nil {
			fail(err)
			return
		}
		addr = c.way.addr()
	}
	// One process in four has a wall clock that is an hour off. One in four has a boot
	// clock that is many hours ahead.
	shift := []string{"0s", "0s", "0s", "-1h", "0s", "0s", "0s", "1h"}[v.rng.IntN(8)]
	if shift != "0s" {
		v.faults["clock shifted"]++
	}
	up := time.Duration(0)
	if timeNamespaces() && v.rng.IntN(4) == 0 {
		v.faults["boot clock shifted"]++
		up = time.Duration(1+v.rng.IntN(1000)) * time.Hour
	}
	args := []string{v.url(v.prefix, addr), c.name, shift, up.String()}
	if role == "reader" {
		from := uint64(0)
		if v.acked > 0 {
			from = v.rng.Uint64N(v.acked)
		}
		args = append(args, fmt.Sprint(from))
	}
	argv := append(shiftBoot(up), os.Args[0])
	argv = append(argv, args...)
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Env = append(os.Environ(), nodeRole+"="+role)
	c.cmd.Stderr = c.stderr
	in, out, err := os.Pipe()
	if err != nil {
		fail(err)
		return
	}
	c.cmd.Stdout = out
	settle, err := c.way.lead(c.cmd)
	if err != nil {
		_, _ = in.Close(), out.Close()
		fail(err)
		return
	}
	ended, err := servers.Spawn(c.cmd)
	_ = out.Close() // the child has its own descriptor
	settle()
	if err != nil {
		_ = in.Close()
		fail(err)
		return
	}
	v.people[c] = true
	stays := time.Duration(v.rng.IntN(1500)) * time.Millisecond
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			v.hear(c, lines.Text())
		}
		_ = in.Close()
		<-ended
		if c.way != nil {
			v.ways.Go(func() { v.abandon(c.way, stays) })
		}
		close(c.ended)
	}()
}

// abandon closes the way of a process that has ended, after a while. So data in flight
// still arrives, also data that the kernel retransmits.
func (v *town) abandon(w *way, after time.Duration) {
	w.clear(false)
	time.Sleep(after)
	count := w.end()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.packets.add(count)
}

// sofar counts the packets of all ways, except those that are closing.
func (v *town) sofar() packets {
	v.mu.Lock()
	defer v.mu.Unlock()
	count := v.packets
	for c := range v.people {
		if c.way != nil {
			count.add(c.way.sofar())
		}
	}
	return count
}

// hear notes a line that a process has printed. A killed process's last line may be cut
// off, so a complete line ends in " .".
func (v *town) hear(c *citizen, line string) {
	kind, rest, _ := strings.Cut(line, " ")
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(c, line)
	switch kind {
	case "lead":
		var epoch uint64
		if n, _ := fmt.Sscanf(rest, "%d .", &epoch); n == 1 && strings.HasSuffix(rest, " .") {
			v.leaders[epoch], v.leader = c.name, c
		}
	case "+", "-", "?":
		v.appended(c, kind, strings.Fields(rest))
	case "sum":
		d := digested{reader: c.name}
		if n, _ := fmt.Sscan(rest, &d.from, &d.to, &d.sum); n == 3 && strings.HasSuffix(rest, " .") {
			v.digests = append(v.digests, d)
		}
	case "broken":
		v.broken = append(v.broken, c.name+": "+rest)
	}
}

// note writes a line to the journal, for people who look for a cause.
func (v *town) note(c *citizen, what string) {
	_, _ = fmt.Fprintf(v.journal, "%s %s %s\n", time.Now().UTC().Format("15:04:05.000000"), c.name, what)
}

// appended notes the result of an append, as a process printed it: times of call and
// answer, offset, values.
func (v *town) appended(c *citizen, kind string, words []string) {
	if len(words) < 5 || words[len(words)-1] != "." {
		return
	}
	var item int
	a := acknowledged{node: c.name}
	values := words[3 : len(words)-1]
	n, _ := fmt.Sscan(strings.Join(words[:3], " "), &a.called, &a.answered, &a.from)
	m, _ := fmt.Sscanf(values[0], "%d/%d/", &item, &a.epoch)
	if n != 3 || m != 2 {
		v.broken = append(v.broken, c.name+" printed an invalid line: "+strings.Join(words, " "))
		return
	}
	switch kind {
	case "+":
		v.history.Appended(c.name, a.epoch, values, a.from, nil)
		v.told = append(v.told, a)
		v.acked = max(v.acked, a.from+uint64(len(values)))
	case "-":
		v.history.Appended(c.name, a.epoch, values, 0, writer.ErrNotCommitted)
	default:
		v.history.Appended(c.name, a.epoch, values, 0, writer.ErrUnknown)
	}
}

// fillDisk fills the disk, which affects all processes.
func (v *town) fillDisk(until time.Time) {
	what := []string{"bytes", "inodes"}[v.rng.IntN(2)]
	if err := v.disk.fill(what, 0); err != nil {
		v.broken = append(v.broken, err.Error())
		return
	}
	v.faults["disk full of "+what]++
	v.full = until
}

// harm harms a process, mostly the leader.
func (v *town) harm() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.disk != nil && v.full.IsZero() && v.rng.IntN(6) == 0 {
		v.fillDisk(time.Now().Add(time.Duration(v.rng.IntN(3000)) * time.Millisecond))
		return
	}
	var victim *citizen
	if v.rng.IntN(5) > 0 {
		victim = v.leader
	} else {
		for c := range v.people {
			if c != v.leader {
				victim = c
				break
			}
		}
	}
	if victim == nil || !victim.wake.IsZero() || !victim.heal.IsZero() {
		return
	}
	fault := func(what string) {
		v.faults[what]++
		v.note(victim, what)
	}
	switch n := v.rng.IntN(10); {
	case n < 4:
		fault("killed")
		_ = victim.cmd.Process.Kill()
	case n < 5:
		fault("asked to end")
		_ = victim.cmd.Process.Signal(syscall.SIGTERM)
	case n < 8 || victim.way == nil:
		fault("frozen")
		_ = victim.cmd.Process.Signal(syscall.SIGSTOP)
		victim.wake = time.Now().Add(chaosValidity + time.Duration(v.rng.IntN(3000))*time.Millisecond)
	default:
		fault(victim.way.worsen(v.rng))
		victim.heal = time.Now().Add(chaosValidity + time.Duration(v.rng.IntN(2000))*time.Millisecond)
	}
	if victim == v.leader {
		v.leader = nil
	}
}

// relent wakes frozen processes, heals connections and frees the disk when it is time.
func (v *town) relent(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.full.IsZero() && now.After(v.full) {
		v.full = time.Time{}
		if err := v.disk.free(); err != nil {
			v.broken = append(v.broken, err.Error())
		}
	}
	for c := range v.people {
		if !c.wake.IsZero() && now.After(c.wake) {
			v.note(c, "woken")
			_ = c.cmd.Process.Signal(syscall.SIGCONT)
			c.wake = time.Time{}
		}
		if !c.heal.IsZero() && now.After(c.heal) {
			// Deliver the data that was held back, or drop it.
			c.way.clear(v.rng.IntN(2) == 0)
			c.heal = time.Time{}
		}
	}
}

// bury ends all processes.
func (v *town) bury() {
	v.mu.Lock()
	people := v.people
	v.people = map[*citizen]bool{}
	v.mu.Unlock()
	v.relent(time.Now().Add(time.Hour))
	for c := range people {
		_ = c.cmd.Process.Kill() // works on frozen ones too
		<-c.ended
	}
	v.ways.Wait()
	if v.t.Failed() {
		for c := range people {
			if s := c.stderr.String(); s != "" {
				v.t.Logf("%s printed:\n%s", c.name, s)
			}
		}
	}
}
