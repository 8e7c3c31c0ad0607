package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

func adaOwnsAll(t *testing.T, url string) {
	t.Helper()
	eventually(t, "ada owns all", func() bool {
		d := parsed[survey.Group](t, "group", "status", "--json", url)
		return len(d.Members) == 1 && d.Members[0].Owned == 8
	})
}

// TestGroupDrainOfTheDead: where no member is live any more, nobody can make one leave. Drain says so and fails.
func TestGroupDrainOfTheDead(t *testing.T) {
	url := memURL(t)
	var down atomic.Bool
	st, err := whileUp(&down)(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	w := &workers{t: t, st: st, validity: time.Second}
	w.add("ada")
	adaOwnsAll(t, url)
	down.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var out, errs buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, open: store.Open, patience: 50 * time.Millisecond}
	status := a.run(ctx, []string{"group", "drain", url, "ada"})
	for _, want := range []string{"told ada (", "to leave. That takes three validities of 1s at most", "no member of the group sends heartbeats", "8 partitions (0-7)", "Start a worker"} {
		if status != exitFailed || !strings.Contains(errs.String(), want) {
			t.Errorf("status %d, no %q in %s", status, want, errs.String())
		}
	}
}

// TestGroupDrainSays: while the work of a member has not returned, drain says again and again for what it waits.
func TestGroupDrainSays(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	returns := make(chan struct{})
	g, err := group.Join(t.Context(), w.st, &group.Options{
		Partitions: 8, Validity: 3 * time.Second, Drain: time.Minute, Identity: "ada",
		Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- g.Run(t.Context(), func(ctx context.Context, _ *group.Partition) error {
			<-ctx.Done()
			<-returns
			return nil
		})
	}()
	adaOwnsAll(t, url)
	var out, errs buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, open: store.Open, patience: 20 * time.Millisecond}
	drained := make(chan int, 1)
	go func() { drained <- a.run(t.Context(), []string{"group", "drain", url, "ada"}) }()
	eventually(t, "it says for what it waits", func() bool {
		return strings.Count(errs.String(), "until ada (") > 3 && strings.Contains(errs.String(), "it owns 8 partitions (0-7); no other member is live, so nobody will own what it leaves")
	})
	close(returns)
	if status := <-drained; status != 0 || !strings.HasSuffix(out.String(), "has left\n") {
		t.Errorf("status %d, %s%s", status, out.String(), errs.String())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestDrainingCountsItsOwn: partitions that move between others are not waited for.
func TestDrainingCountsItsOwn(t *testing.T) {
	d := draining{name: "aa", who: "ada", mine: map[int]bool{}}
	now := time.Now()
	look := func(owners, moving []int, members ...group.Member) bool {
		if len(members) == 0 {
			members = []group.Member{{Name: "aa", Identity: "ada"}, {Name: "bb", Identity: "bob"}, {Name: "cc", Identity: "cyd"}}
		}
		for _, o := range owners {
			members[o].Owned++
		}
		return d.look(&group.Status{Validity: time.Second, Members: members, Owners: owners, Moving: moving}, now)
	}
	if look([]int{0, 0, 1, 2}, []int{3}) {
		t.Error("it owns two partitions")
	}
	if got := d.left(); got != "it owns 2 partitions (0-1)" {
		t.Error(got)
	}
	if look([]int{1, 2, 1, 2}, []int{0, 1, 3}) {
		t.Error("two partitions move from it")
	}
	if got := d.left(); got != "it owns 0 partitions; 2 partitions (0-1) moving from it to bob (bb), cyd (cc)" {
		t.Error(got)
	}
	if !look([]int{1, 2, 1, 2}, []int{3}) || !slices.Equal(d.moving, nil) {
		t.Error("it waits for the move of others")
	}
	lapsed := []group.Member{{Name: "aa", Identity: "ada", Lapsed: true}, {Name: "bb", Expired: true}}
	if look([]int{0, 1}, nil, lapsed...) || d.stuck(now.Add(time.Second)) != nil {
		t.Error("it waits for no member to come back")
	}
	if err := d.stuck(now.Add(2 * time.Second)); err == nil {
		t.Error("it waits for ever")
	}
	if look([]int{0, 1}, nil, group.Member{Name: "aa", Lapsed: true}, group.Member{Name: "bb"}) || d.stuck(now.Add(time.Hour)) != nil {
		t.Error("bob can find it dead")
	}
}

// TestDrainingOfAnIdleMember: what moved when the drain began may move from the member. It is not waited for longer than
// three validities.
func TestDrainingOfAnIdleMember(t *testing.T) {
	now := time.Now()
	d := draining{name: "aa", who: "ada", mine: map[int]bool{}, maybe: map[int]bool{2: true}, began: now}
	s := &group.Status{
		Validity: time.Second, Owners: []int{1, 1, 2}, Moving: []int{1, 2},
		Members: []group.Member{{Name: "aa", Identity: "ada"}, {Name: "bb", Identity: "bob", Owned: 2}, {Name: "cc", Identity: "cyd", Owned: 1}},
	}
	if d.look(s, now.Add(2*time.Second)) {
		t.Error("it does not wait")
	}
	if got := d.left(); got != "it owns 0 partitions; 1 partition (2) moving, perhaps from it" {
		t.Error(got)
	}
	if !d.look(s, now.Add(3*time.Second)) {
		t.Error("it waits for the moves of others: " + d.left())
	}
}

// TestDrainOfAnIdleMemberEnds: what moves between others is not waited for although nothing changes any more.
func TestDrainOfAnIdleMemberEnds(t *testing.T) {
	url := memURL(t)
	st := openStore(t, url)
	hold := make(chan struct{})
	add := func(identity string, weight int) {
		t.Helper()
		g, err := group.Join(t.Context(), st, &group.Options{
			Partitions: 8, Validity: 3 * time.Second, Drain: time.Minute, Identity: identity, Weight: weight,
			Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- g.Run(t.Context(), func(ctx context.Context, _ *group.Partition) error {
				<-ctx.Done()
				<-hold
				return nil
			})
		}()
		t.Cleanup(func() { <-ended })
	}
	add("cyd", 1)
	adaOwnsAll(t, url) // or cyd
	add("ada", -1)
	add("dan", 1)
	t.Cleanup(func() { close(hold) }) // first
	d := draining{mine: map[int]bool{}, maybe: map[int]bool{}, began: time.Now()}
	for s, err := range group.Observe(t.Context(), st, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if m, err := find(&s, "ada"); err == nil && len(s.Members) == 3 && len(s.Moving) == 4 {
			d.name, d.who = m.Name, person(&m)
			for _, p := range s.Moving {
				d.maybe[p] = true
			}
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	a := &app{con: newConsole(io.Discard, false, time.Second), log: zap.NewNop(), patience: 50 * time.Millisecond}
	if err := a.drained(ctx, st, &d); err != nil {
		t.Error(err)
	}
}

// TestGroupStatusThroughAnOutage: group status --watch says that the store fails, goes on, and prints nothing twice.
func TestGroupStatusThroughAnOutage(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	w.add("ada")
	adaOwnsAll(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var down atomic.Bool
	var out, errs buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, open: whileUp(&down)}
	ended := make(chan int)
	go func() { ended <- a.run(ctx, []string{"group", "status", "--watch", "--json", url}) }()
	eventually(t, "the first state", func() bool { return out.String() != "" })
	down.Store(true)
	eventually(t, "it says so", func() bool { return strings.Contains(errs.String(), "out of order; looking again in 1s") })
	down.Store(false)
	w.add("bob")
	eventually(t, "another state", func() bool { return strings.Contains(out.String(), `"bob"`) })
	cancel()
	<-ended
	var last []byte
	for l := range bytes.Lines([]byte(out.String())) {
		if bytes.Equal(l, last) {
			t.Errorf("it prints twice %s", l)
		}
		last = l
	}
}
