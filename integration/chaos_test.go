//go:build integration && linux

package integration

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
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
	// Gaps counts logs in which an item of the source is missing or not at its place.
	Gaps int `json:"gaps"`
	// Together counts openings of a partition while another process held it, by its own belief,
	// or with a token that does not rise.
	Together int `json:"held_together,omitempty"`
	// Unowned says how long partitions were held by nobody, from one owner to the next; nil without a group.
	Unowned *unowned `json:"without_an_owner,omitempty"`
}

func (c *Counts) bad() int {
	return c.Lost + c.Doubled + c.Zombies + c.Broken + c.Gaps + c.Together
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
	serverKills := killServer(s, enough)
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

// killServer kills and restarts a server that keeps data, now and then, until enough says so.
func killServer(s *servers.Server, enough func() bool) (kills int) {
	for calm := 0; !enough(); calm++ {
		time.Sleep(time.Second)
		if s != nil && s.Kind.Durable && calm > 2+rand.IntN(6) {
			s.Kill()
			kills++
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
			s.Restart()
			calm = 0
		}
	}
	return kills
}
