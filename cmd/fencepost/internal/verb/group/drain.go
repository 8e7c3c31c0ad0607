package group

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
)

func drainCommand(k *kit.Kit) *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use:   "drain [--no-wait] [--json] URL MEMBER",
		Short: "make a worker leave in good order",
		Long: `Drain makes a member of a group leave: its partitions go to others, and the work on each
goes on until the new owner is ready. It prints a line when the member is gone, or owns
nothing any more and nobody waits for it. The worker's Run returns then; what the
program does next is its own matter. If it joins again, it is a new member.

Until then it says now and then what is left. That takes three validities of the group
at most, and as long as the member's work takes to return. A signal ends only the wait.
If no other member is live, nobody owns the partitions afterwards. If no member at all
is live any more, nobody can move them, and drain fails.

MEMBER is the name that group status prints, or the beginning of it, or the identity
of the worker.

It needs the rights to read and to create objects.`,
		Example: "fencepost group drain s3://bucket/orders 3f2a91c0",
		Args:    kit.WantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := k.Store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			return drain(cmd.Context(), k, st, args[1], !noWait)
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return as soon as the store has the call")
	k.JSONFlag(c)
	return c
}

func drain(ctx context.Context, k *kit.Kit, st store.Store, who string, wait bool) error {
	d := draining{mine: map[int]bool{}, maybe: map[int]bool{}, began: time.Now()}
	var m group.Member
	var validity time.Duration
	err := follow(ctx, k, st, func(s *group.Status) (done bool, err error) {
		validity = s.Validity
		if m, err = find(s, who); err == nil {
			d.name, d.who = m.Name, person(&m)
			for _, p := range s.Moving {
				d.maybe[p] = true
			}
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if err := group.Drain(ctx, st, m.Name, nil); err != nil {
		return err
	}
	text := fmt.Appendf(nil, "%s is told to leave; it owns %s\n", d.who, kit.Plural(m.Owned, "partition"))
	if wait {
		k.Console.Note("told %s to leave. That takes three validities of %v at most, and as long as its work takes to return. A signal ends only this wait", d.who, validity)
		if err := drained(ctx, k, st, &d); err != nil {
			return err
		}
		text = fmt.Appendf(nil, "%s has left\n", d.who)
	}
	return k.Show(struct {
		Member   string `json:"member"`
		Identity string `json:"identity"`
		Left     bool   `json:"left"`
	}{m.Name, m.Identity, wait}, text)
}

// drained waits until a member has left, or nobody can make it leave. It says after each change and now and
// then what is left.
func drained(ctx context.Context, k *kit.Kit, st store.Store, d *draining) error {
	ctx, cancel := context.WithCancel(ctx)
	looks, ended := make(chan *group.Status), make(chan error, 1)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() {
		ended <- follow(ctx, k, st, func(s *group.Status) (bool, error) {
			select {
			case looks <- s:
			case <-ctx.Done():
			}
			return false, nil
		})
	})
	tick := time.NewTicker(k.Patience)
	defer tick.Stop()
	last := ""
	for {
		select {
		case s := <-looks:
			if d.look(s, time.Now()) {
				return nil
			}
			if now := d.left(); now != last {
				k.Console.Note("%s leaves: %s", d.who, now)
				last = now
			}
		case <-tick.C:
			if d.s != nil && d.look(d.s, time.Now()) { // nothing has changed, but some is not waited for any longer
				return nil
			}
			if err := d.stuck(time.Now()); err != nil {
				return err
			}
			k.Console.Note("waiting for %v until %s has left: %s", time.Since(d.began).Round(time.Second), d.who, last)
		case err := <-ended:
			return err
		}
	}
}

// draining is what is known of a member that leaves.
type draining struct {
	name, who string
	began     time.Time
	// mine are the partitions that were seen to be its own. Maybe are those that moved already when the drain began:
	// nobody says from whom, so they are not waited for longer than three validities. Others wait for others.
	mine, maybe map[int]bool
	s           *group.Status
	index       int       // of the member in s
	moving      []int     // from it
	unsure      []int     // move, perhaps from it
	dead        time.Time // since when no member is live; zero: one is
}

// look takes in what an observer sees. It reports whether the member has left.
func (d *draining) look(s *group.Status, now time.Time) (done bool) {
	d.s, d.moving, d.unsure = s, nil, nil
	d.index = slices.IndexFunc(s.Members, func(m group.Member) bool { return m.Name == d.name })
	if d.index < 0 || s.Members[d.index].Expired {
		return true
	}
	for p, owner := range s.Owners {
		d.mine[p] = d.mine[p] || owner == d.index
	}
	for _, p := range s.Moving {
		switch {
		case s.Owners[p] == d.index: // to it
		case d.mine[p]:
			d.moving = append(d.moving, p)
		case d.maybe[p] && now.Sub(d.began) < 3*s.Validity:
			d.unsure = append(d.unsure, p)
		}
	}
	switch live := slices.ContainsFunc(s.Members, live); {
	case live:
		d.dead = time.Time{}
	case d.dead.IsZero():
		d.dead = now
	}
	return s.Members[d.index].Owned == 0 && len(d.moving)+len(d.unsure) == 0
}

func live(m group.Member) bool { return !m.Expired && !m.Lapsed }

// left says what is left, and who is to do it.
func (d *draining) left() string {
	m := &d.s.Members[d.index]
	var own []int
	for p, owner := range d.s.Owners {
		if owner == d.index {
			own = append(own, p)
		}
	}
	var to []string
	for _, p := range d.moving {
		if o := d.s.Owners[p]; o >= 0 && !slices.Contains(to, person(&d.s.Members[o])) {
			to = append(to, person(&d.s.Members[o]))
		}
	}
	if len(to) > 3 {
		to = append(to[:3], "…")
	}
	all := "it owns " + some(own)
	if len(d.moving) > 0 {
		all += "; " + some(d.moving) + " moving from it"
		if len(to) > 0 {
			all += " to " + strings.Join(to, ", ")
		}
	}
	if len(d.unsure) > 0 {
		all += "; " + some(d.unsure) + " moving, perhaps from it"
	}
	others := slices.ContainsFunc(d.s.Members, func(x group.Member) bool { return x.Name != d.name && live(x) && !x.Leaving })
	switch {
	case !d.dead.IsZero():
		all += "; no member is live"
	case m.Lapsed:
		all += fmt.Sprintf("; it has sent no heartbeat for longer than a validity of %v, and the others have to find it dead", d.s.Validity)
	case !others:
		all += "; no other member is live, so nobody will own what it leaves"
	}
	return all
}

// stuck returns an error if the member cannot leave. Members that an outage has kept from sending heartbeats
// get some time to come back.
func (d *draining) stuck(now time.Time) error {
	if d.dead.IsZero() || now.Sub(d.dead) < 2*d.s.Validity {
		return nil
	}
	return fmt.Errorf("%s is told to leave, but no member of the group sends heartbeats any more. So nobody moves its partitions: %s. Start a worker: it finds the dead members and takes their partitions; see fencepost group status", d.who, d.left())
}

// person is how people know a member.
func person(m *group.Member) string {
	return fmt.Sprintf("%s (%s)", cmp.Or(m.Identity, "-"), Short(m.Name))
}

// some names partitions, with their number.
func some(ps []int) string {
	if len(ps) == 0 {
		return kit.Plural(0, "partition")
	}
	return fmt.Sprintf("%s (%s)", kit.Plural(len(ps), "partition"), runs(ps))
}

// find returns the member that somebody means.
func find(s *group.Status, who string) (group.Member, error) {
	var found []group.Member
	for _, m := range s.Members {
		if !m.Expired && (m.Identity == who || who != "" && strings.HasPrefix(m.Name, who)) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return group.Member{}, fmt.Errorf("%w called %q; see `fencepost group status`", group.ErrNoMember, who)
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, m := range found {
		names[i] = m.Name
	}
	return group.Member{}, kit.Usage("%q may be any of %s; give the name of one", who, strings.Join(names, ", "))
}
