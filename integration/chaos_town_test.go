//go:build integration && linux

package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/internal/test/sim"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// town is one log and its processes, or a group with a log for each partition.
type town struct {
	t        *testing.T
	st       store.Store
	prefix   string
	addr     string
	url      func(prefix, addr string) string
	rng      *rand.Rand
	populace map[string]int // the number of processes of each role
	grouped  bool           // logs are those of the partitions of a group
	gate     *gate          // nil: no packets to lose
	network  string
	ways     sync.WaitGroup // those that are still open
	disk     *disk          // nil: no disk to fill

	mu      sync.Mutex
	born    int
	people  map[*citizen]bool
	leader  *citizen // nil in a group, which has many
	logs    []*ledger
	faults  map[string]int
	full    time.Time // until when the disk is full
	packets packets   // of the ways that have ended
	broken  []string
	journal io.Writer
}

// ledger is what the processes have told about one log.
type ledger struct {
	st      store.Store
	name    string
	history sim.Told
	leaders map[fence.Epoch]string // epoch → process
	told    []acknowledged
	acked   uint64 // offset after the last acknowledged record
	digests []digested
	held    map[fence.Epoch]*holding // by token; only of a partition
	deserts fence.Epoch              // the token after which the partition was reported to have no owner
}

func newLedger(st store.Store, name string) *ledger {
	return &ledger{st: st, name: name, leaders: map[fence.Epoch]string{}, held: map[fence.Epoch]*holding{}}
}

// citizen is one process.
type citizen struct {
	name, role string
	cmd        *exec.Cmd
	stderr     *bytes.Buffer
	way        *way // nil on a file system
	ended      chan struct{}
	wake       time.Time // until when it is frozen
	heal       time.Time // until when its weather is bad
	led        bool      // it has opened a log
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
		people: map[*citizen]bool{}, logs: []*ledger{newLedger(st, prefix)}, faults: map[string]int{}, journal: journal,
		populace: map[string]int{"writer": 3, "compactor": 2, "reader": 1},
	}
	v.network = "none"
	if addr != "" {
		v.gate, v.network = openNetwork(t)
	}
	t.Cleanup(v.bury)
	return v
}

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
		v.deserted(elapsed(0))
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
	for _, l := range v.logs {
		last := ""
		for _, e := range slices.Sorted(maps.Keys(l.leaders)) {
			switch who := l.leaders[e]; who {
			case last:
				same++
			default:
				if last != "" {
					others++
				}
				last = who
			}
		}
	}
	return others, same
}

// used reports whether records were acknowledged, and read.
func (v *town) used() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.logs {
		if l.acked == 0 || len(l.digests) == 0 && v.populace["reader"] > 0 {
			return false
		}
	}
	return true
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
	for role, n := range v.populace {
		for range n - count[role] {
			v.start(role)
		}
	}
}

// start starts a process. The caller holds mu.
func (v *town) start(role string) {
	v.born++
	c := &citizen{name: fmt.Sprintf("%s-%d", role, v.born), role: role, stderr: &bytes.Buffer{}, ended: make(chan struct{})}
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
		if n := v.logs[0].acked; n > 0 {
			from = v.rng.Uint64N(n)
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
// off, so a complete line ends in " .". A line about a partition begins with "@", its number
// and a space.
func (v *town) hear(c *citizen, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(c, line)
	l := v.logs[0]
	if about, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(about, "@") {
		n, err := strconv.Atoi(about[1:])
		if err != nil || n >= len(v.logs) {
			v.broken = append(v.broken, c.name+" printed an invalid line: "+line)
			return
		}
		l, line = v.logs[n], rest
	}
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "lead":
		var epoch fence.Epoch
		if n, _ := fmt.Sscanf(rest, "%d .", &epoch); n == 1 && strings.HasSuffix(rest, " .") {
			l.leaders[epoch], c.led = c.name, true
			if !v.grouped {
				v.leader = c
			}
		}
	case "holds", "frees":
		l.hold(c.name, kind, rest)
	case "+", "-", "?":
		v.appended(c, l, kind, strings.Fields(rest))
	case "sum":
		d := digested{reader: c.name}
		if n, _ := fmt.Sscan(rest, &d.from, &d.to, &d.sum); n == 3 && strings.HasSuffix(rest, " .") {
			l.digests = append(l.digests, d)
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
func (v *town) appended(c *citizen, l *ledger, kind string, words []string) {
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
		l.history.Appended(c.name, a.epoch, values, a.from, nil)
		l.told = append(l.told, a)
		l.acked = max(l.acked, a.from+uint64(len(values)))
	case "-":
		l.history.Appended(c.name, a.epoch, values, 0, writer.ErrNotCommitted)
	default:
		l.history.Appended(c.name, a.epoch, values, 0, writer.ErrUnknown)
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

// harm harms a process, mostly the leader if there is one.
func (v *town) harm() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.disk != nil && v.full.IsZero() && v.rng.IntN(6) == 0 {
		v.fillDisk(time.Now().Add(time.Duration(v.rng.IntN(3000)) * time.Millisecond))
		return
	}
	var victim *citizen
	if !v.grouped && v.rng.IntN(5) > 0 {
		victim = v.leader
	} else {
		for c := range v.people {
			// In a group all lead. One that has not opened a log yet is mostly spared, or nothing would
			// happen on a slow machine.
			if c != v.leader && (!v.grouped || c.led || v.rng.IntN(20) == 0) {
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
