//go:build integration && linux

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var (
	chaosPartitions = flag.Int("chaos-partitions", 12, "number of partitions of the group on each server")
	chaosHandovers  = flag.Int("chaos-handovers", 40, "number of hand-overs of partitions wanted on each server; the test continues until it is reached, for up to ten times -chaos-time")
	chaosAll        = flag.Int("chaos-handovers-total", 160, "number of hand-overs required on all servers together; the directory, which comes last and is the fastest, makes up for the others, for up to ten times -chaos-time")
	chaosGroups     = flag.String("chaos-groups-report", "", "write the counts of the groups to this `file`, as JSON")
)

// groupValidity is short, so that there are many hand-overs.
const groupValidity = time.Second

// TestChaosGroups runs a group of workers as processes, on each real server and in a directory.
// Processes are killed, frozen, woken and asked to end, their connections are cut and lose packets,
// and servers that keep data are killed. No two workers may hold a partition at once, by their own
// belief. The log of each partition must be one history with every acknowledged record in it, once.
func TestChaosGroups(t *testing.T) {
	var all []Counts
	run := func(t *testing.T, name string, s *servers.Server, url func(prefix, addr string) string) {
		c := chaosGroup(t, s, name, url)
		all = append(all, c)
		b, _ := json.Marshal(c) // only numbers and strings, so it cannot fail
		t.Logf("%s", b)
	}
	for _, kind := range servers.Conforming {
		t.Run(kind.Name, func(t *testing.T) {
			s := servers.Start(t, kind)
			run(t, kind.Name, s, func(prefix, addr string) string {
				return fmt.Sprintf("s3://%s/%s?endpoint=http://%s&region=us-east-1", s.Bucket, prefix, addr)
			})
		})
	}
	wanted := *chaosAll
	for _, c := range all {
		wanted -= c.Failovers
	}
	t.Run("dirstore", func(t *testing.T) {
		*chaosHandovers = max(*chaosHandovers, wanted)
		dir := t.TempDir()
		run(t, "dirstore", nil, func(prefix, _ string) string { return "file://" + filepath.Join(dir, prefix) })
		if n := all[len(all)-1].Failovers; n < wanted && !t.Failed() {
			t.Errorf("%d hand-overs too few: the test does not test enough", wanted-n)
		}
	})
	if *chaosGroups != "" {
		b, err := json.MarshalIndent(reported(all), "", "  ")
		if err := errors.Join(err, os.WriteFile(*chaosGroups, append(b, '\n'), 0o644)); err != nil {
			t.Error(err)
		}
	}
}

// chaosGroup is the part on one server.
func chaosGroup(t *testing.T, s *servers.Server, name string, url func(prefix, addr string) string) Counts {
	begun := time.Now()
	addr := ""
	if s != nil {
		addr = strings.TrimPrefix(s.Endpoint, "http://")
	}
	v := newTown(t, foundGroup(t, url("chaos-group", addr)), "chaos-group", addr, url)
	v.grouped, v.populace = true, map[string]int{"worker": 4}
	v.logs = nil
	for p := range *chaosPartitions {
		part, err := group.PartitionStore(v.st, p)
		if err != nil {
			t.Fatal(err)
		}
		v.logs = append(v.logs, newLedger(part, fmt.Sprintf("%s, partition %d", name, p)))
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		v.live(end)
	}()
	enough := func() bool {
		since := time.Since(begun)
		handovers, _ := v.failovers()
		return since > *chaosTime && (v.used() && handovers >= *chaosHandovers || since > 10**chaosTime)
	}
	kills := killServer(s, enough)
	close(end)
	<-ended
	v.recovers()
	total := Counts{Server: name, Network: v.network, Faults: map[string]int{}, Unowned: v.unowned()}
	if kills > 0 {
		total.Faults["server killed"] = kills
	}
	v.check(&total)
	total.Packets = v.sofar()
	total.Seconds = time.Since(begun).Seconds()
	// A slow server, or a slow machine, may have fewer; the directory makes up for it.
	if total.Failovers < *chaosHandovers/8 && !t.Failed() {
		t.Errorf("%d hand-overs, want %d: the test does not test enough", total.Failovers, *chaosHandovers)
	}
	return total
}

// foundGroup creates a group, so that its workers need not.
func foundGroup(t *testing.T, url string) store.Store {
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	g, err := group.Join(t.Context(), st, &group.Options{Partitions: *chaosPartitions, Validity: groupValidity, RequestTimeout: 2 * groupValidity / 5})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st
}

// shares runs a worker. What it prints about partition 3 begins with "@3 ". Beside what writes
// prints, "holds token now until ." says that at now it holds the partition, and will until then if no
// heartbeat is applied; "frees token now ." that it does not any more.
func shares(ctx context.Context, st store.Store, name string, up time.Duration, clk clock.Clock, settle *store.SettleOptions) error {
	say := speaker()
	return group.Run(ctx, st, &group.RunOptions{
		Group:  &group.Options{Identity: name, Clock: clk, RequestTimeout: 2 * groupValidity / 5, Drain: 2 * groupValidity},
		Writer: &writer.Options{Concurrency: 4, Checkpoint: 300 * time.Millisecond, Settle: settle, Clock: clk},
	}, func(ctx context.Context, s *group.Session) error {
		about := fmt.Sprintf("@%d ", s.Partition.Number())
		here := func(format string, args ...any) { say(about+format, args...) }
		token := s.Epoch()
		hold := func() {
			// This process may be frozen between the two lines. Then the time that it tells is too early, and
			// never too late.
			now := elapsed(up)
			if left := s.Partition.Remaining(); left > 0 {
				here("holds %d %d %d .", token, now, now+int64(left))
			}
		}
		hold()
		over, stop := context.WithCancel(context.Background())
		var beside sync.WaitGroup
		beside.Go(func() {
			for clock.Sleep(over, clk, groupValidity/5) == nil {
				hold()
			}
		})
		err := appends(ctx, s.Writer, name, up, 300*time.Millisecond, here)
		stop()
		beside.Wait()
		here("frees %d %d .", token, elapsed(up))
		return err
	})
}

// holding is a time in which a process believed that it owned a partition.
type holding struct {
	process     string
	token       fence.Epoch
	from, until int64
}

// hold notes a line of a worker. The caller holds the town's mu.
func (l *ledger) hold(process, kind, rest string) {
	var token fence.Epoch
	var now, until int64
	switch kind {
	case "holds":
		if n, _ := fmt.Sscanf(rest, "%d %d %d .", &token, &now, &until); n != 3 || !strings.HasSuffix(rest, " .") {
			return
		}
		h := l.held[token]
		if h == nil {
			h = &holding{process, token, now, until}
			l.held[token] = h
		}
		h.until = max(h.until, until)
	case "frees":
		if n, _ := fmt.Sscanf(rest, "%d %d .", &token, &now); n != 2 || !strings.HasSuffix(rest, " .") {
			return
		}
		if h := l.held[token]; h != nil {
			h.until = min(h.until, now)
		}
	}
}

// desertAfter is how long nobody may hold a partition. A crash costs a little more than a validity. In the suite several
// workers are often dead, frozen or cut off at once, and the longest such time on two busy cores was 25 validities.
const desertAfter = 120 * groupValidity

// deserted reports partitions that nobody has held for too long at now, by the machine's clock. It is asked all the time
// while workers are harmed, so no such time is missed.
func (v *town) deserted(now int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.logs {
		if token, since := l.last(); token > l.deserts && now-since > int64(desertAfter) {
			l.deserts = token
			v.broken = append(v.broken, fmt.Sprintf("%s: nobody has held it for more than %v after token %d", l.name, desertAfter, token))
		}
	}
}

// last returns the greatest token of a partition, and until when it was held. The token is 0 if nobody has held it.
func (l *ledger) last() (token fence.Epoch, until int64) {
	for t, h := range l.held {
		if t > token {
			token, until = t, h.until
		}
	}
	return token, until
}

// recovers wakes and heals all workers, and reports each partition that nobody holds after a while.
func (v *town) recovers() {
	v.relent(time.Now().Add(time.Hour))
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		v.mu.Lock()
		var free []string
		for _, l := range v.logs {
			if _, until := l.last(); until < elapsed(0) {
				free = append(free, l.name)
			}
		}
		late := time.Since(begun) > desertAfter
		if late && len(free) > 0 {
			v.broken = append(v.broken, fmt.Sprintf("nobody is harmed any more, and still nobody holds %q after %v", free, desertAfter))
		}
		v.mu.Unlock()
		if late || len(free) == 0 {
			return
		}
	}
}

// unowned is how long partitions were held by nobody, in seconds, from one owner to the next.
type unowned struct {
	Times   int     `json:"times"`
	P50     float64 `json:"p50_seconds"`
	P99     float64 `json:"p99_seconds"`
	Longest float64 `json:"longest_seconds"`
}

func (v *town) unowned() *unowned {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []float64
	for _, l := range v.logs {
		all = append(all, pauses(l.held)...)
	}
	slices.Sort(all)
	if len(all) == 0 {
		return &unowned{}
	}
	return &unowned{len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1]}
}

// pauses returns for each holding but the first how many seconds it began after the end of the one before.
func pauses(held map[fence.Epoch]*holding) (all []float64) {
	in := slices.SortedFunc(maps.Values(held), func(a, b *holding) int { return cmp.Compare(a.token, b.token) })
	for i, h := range in[min(1, len(in)):] {
		all = append(all, time.Duration(h.from-in[i].until).Seconds())
	}
	return all
}

// groupsReport is the file of -chaos-groups-report. The first counts are of all servers together.
type groupsReport struct {
	Date       string   `json:"date"`
	Machine    string   `json:"machine"`
	Partitions int      `json:"partitions"`
	Validity   float64  `json:"validity_seconds"`
	Handovers  int      `json:"handovers"`
	Lost       int      `json:"lost"`
	Doubled    int      `json:"doubled"`
	Gaps       int      `json:"gaps"`
	Together   int      `json:"held_together"`
	Broken     int      `json:"otherwise_broken"`
	Longest    float64  `json:"longest_without_an_owner_seconds"`
	Servers    []Counts `json:"servers"`
}

func reported(all []Counts) groupsReport {
	r := groupsReport{
		Date: time.Now().UTC().Format(time.DateOnly), Machine: fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		Partitions: *chaosPartitions, Validity: groupValidity.Seconds(), Servers: all,
	}
	for _, c := range all {
		r.Handovers += c.Failovers
		r.Lost += c.Lost
		r.Doubled += c.Doubled
		r.Gaps += c.Gaps
		r.Together += c.Together
		r.Broken += c.Broken + c.Zombies
		if c.Unowned != nil {
			r.Longest = max(r.Longest, c.Unowned.Longest)
		}
	}
	return r
}

// together returns where somebody held a partition before the one before was over, and where tokens
// did not rise.
func together(held map[fence.Epoch]*holding) (found []string) {
	all := slices.SortedFunc(maps.Values(held), func(a, b *holding) int { return cmp.Compare(a.from, b.from) })
	for i, h := range all[min(1, len(all)):] {
		if before := all[i]; h.from < before.until || h.token <= before.token {
			found = append(found, fmt.Sprintf("%+v after %+v", *h, *before))
		}
	}
	return found
}

// TestChaosGroupsCheckFinds: the checker reports what is wrong.
func TestChaosGroupsCheckFinds(t *testing.T) {
	told := func(lines ...string) map[fence.Epoch]*holding {
		l := newLedger(nil, "")
		for _, line := range lines {
			kind, rest, _ := strings.Cut(line, " ")
			l.hold("p", kind, rest)
		}
		return l.held
	}
	for name, c := range map[string]struct {
		held  map[fence.Epoch]*holding
		found int
	}{
		"in order":           {told("holds 1 10 20 .", "holds 1 15 30 .", "frees 1 25 .", "holds 2 26 40 ."), 0},
		"killed":             {told("holds 1 10 20 .", "holds 2 20 30 ."), 0},
		"a line cut off":     {told("holds 1 10 20 .", "holds 1 15 30", "holds 2 20 30 ."), 0},
		"before the end":     {told("holds 1 10 20 .", "holds 1 15 30 .", "holds 2 26 40 ."), 1},
		"a token that falls": {told("holds 2 10 20 .", "holds 1 30 40 ."), 1},
	} {
		if found := together(c.held); len(found) != c.found {
			t.Errorf("%s: found %q, want %d", name, found, c.found)
		}
	}
	v := &town{logs: []*ledger{newLedger(nil, "never held"), newLedger(nil, "held")}}
	v.logs[1].held = told("holds 1 10 20 .", "holds 2 26 40 .", "frees 2 35 .")
	if got := v.unowned(); got.Times != 1 || got.Longest != time.Duration(6).Seconds() {
		t.Errorf("without an owner: %+v", got)
	}
	for _, c := range []struct {
		now   int64
		found int
	}{{35 + int64(desertAfter), 0}, {36 + int64(desertAfter), 1}, {99 + int64(desertAfter), 1}} {
		if v.deserted(c.now); len(v.broken) != c.found {
			t.Errorf("at %d deserted are %q, want %d", c.now, v.broken, c.found)
		}
	}
	r := reported([]Counts{{Failovers: 3, Lost: 1, Gaps: 1, Unowned: &unowned{Longest: 2}}, {Failovers: 4, Doubled: 1, Zombies: 1, Together: 1}})
	if r.Handovers != 7 || r.Lost != 1 || r.Doubled != 1 || r.Gaps != 1 || r.Broken != 1 || r.Together != 1 || r.Longest != 2 {
		t.Errorf("the report is %+v", r)
	}
}
