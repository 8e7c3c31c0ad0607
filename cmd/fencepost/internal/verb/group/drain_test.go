package group

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

func TestFindMember(t *testing.T) {
	s := &group.Status{Members: []group.Member{
		{Name: "abc1", Identity: "x"}, {Name: "abd2", Identity: "y"}, {Name: "e3", Identity: "y"}, {Name: "f4", Identity: "x", Expired: true},
	}}
	for who, want := range map[string]string{"abc": "abc1", "abd2": "abd2", "x": "abc1", "e": "e3"} {
		if m, err := find(s, who); err != nil || m.Name != want {
			t.Errorf("%q is %+v, %v", who, m, err)
		}
	}
	for who, want := range map[string]error{"": group.ErrNoMember, "ab": kit.ErrUsage, "y": kit.ErrUsage, "f4": group.ErrNoMember, "z": group.ErrNoMember} {
		if m, err := find(s, who); !errors.Is(err, want) {
			t.Errorf("%q is %+v, %v", who, m, err)
		}
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
	st := memstore.New(nil)
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
	for s, err := range group.Observe(t.Context(), st, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Members) == 1 && s.Members[0].Owned == 8 {
			break
		}
	}
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
	a := &kit.Kit{Console: kit.NewConsole(io.Discard, false, time.Second), Log: zap.NewNop(), Patience: 50 * time.Millisecond}
	if err := drained(ctx, a, st, &d); err != nil {
		t.Error(err)
	}
}
