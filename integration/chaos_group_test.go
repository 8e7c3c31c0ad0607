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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/integration/servers"
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
		b, err := json.MarshalIndent(all, "", "  ")
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
		part, err := fencepost.PartitionStore(v.st, p)
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
	total := Counts{Server: name, Network: v.network, Faults: map[string]int{}}
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
	return fencepost.RunGroup(ctx, st, &fencepost.GroupOptions{
		Group:  &group.Options{Identity: name, Clock: clk, RequestTimeout: 2 * groupValidity / 5, Drain: 2 * groupValidity},
		Writer: &writer.Options{InFlight: 4, Checkpoint: 300 * time.Millisecond, Settle: settle, Clock: clk},
	}, func(ctx context.Context, s *fencepost.PartitionSession) error {
		about := fmt.Sprintf("@%d ", s.Partition.Number())
		here := func(format string, args ...any) { say(about+format, args...) }
		token := uint64(s.Epoch())
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
	token       uint64
	from, until int64
}

// hold notes a line of a worker. The caller holds the town's mu.
func (l *ledger) hold(process, kind, rest string) {
	var token uint64
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

// together returns where somebody held a partition before the one before was over, and where tokens
// did not rise.
func together(held map[uint64]*holding) (found []string) {
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
	told := func(lines ...string) map[uint64]*holding {
		l := newLedger(nil, "")
		for _, line := range lines {
			kind, rest, _ := strings.Cut(line, " ")
			l.hold("p", kind, rest)
		}
		return l.held
	}
	for name, c := range map[string]struct {
		held  map[uint64]*holding
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
}
