package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/store"
)

func (a *app) groupCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "group VERB URL",
		Short: "show or change a group of workers that share partitions",
		Long: `A group is what package group keeps in a store: workers share partitions, and each
partition has one owner. The URL is the one that the workers use.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			verbs := []string{"status", "drain", "retry"}
			if len(args) == 0 {
				return usage("which verb: group %s? see fencepost help group", strings.Join(verbs, " or group "))
			}
			return usage("there is no verb %q of group%s; see fencepost help group", args[0], didYouMean("group ", args[0], verbs))
		},
	}
	c.AddCommand(a.groupStatusCmd(), a.groupDrainCmd(), a.groupRetryCmd())
	return c
}

func (a *app) groupStatusCmd() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "status [--json] [--watch] URL",
		Short: "print the members, what each owns, and what is moving",
		Long: `Status prints the members of a group in the order in which they organise, with what
each owns, and who organises. It lists the partitions that wait until their last owner
has stopped, and those that nobody owns. It also lists those that their owners gave up,
because their work failed or hung. With --watch it prints that again after each change,
until it is interrupted; with --json as well, one line for each.

The states are: live; leaving, which receives nothing more; lapsed, which was not
renewed for longer than its validity; and expired, which was found dead.

It needs the right to read.`,
		Example: "fencepost group status s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			return a.follow(cmd.Context(), st, func(s *group.Status) (done bool, err error) {
				doc := describe(s)
				switch {
				case !a.json:
					b := groupTable(&doc)
					if watch {
						b = append(b, '\n')
					}
					err = a.write(b)
				case !watch:
					err = a.print(doc)
				default:
					var b []byte
					if b, err = json.Marshal(doc); err == nil {
						err = a.write(append(b, '\n'))
					}
				}
				return !watch, err
			})
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "print again after each change")
	a.jsonFlag(c)
	return c
}

func (a *app) groupDrainCmd() *cobra.Command {
	var noWait bool
	c := &cobra.Command{
		Use:   "drain [--no-wait] [--json] URL MEMBER",
		Short: "make a worker leave in good order",
		Long: `Drain makes a member of a group leave: its partitions go to others, and the work on each
goes on until the new owner is ready. It prints a line when the member is gone, or owns
nothing any more and nobody waits for it. The worker's Run returns then; what the
program does next is its own matter. If it joins again, it is a new member.

MEMBER is the name that group status prints, or the beginning of it, or the identity
of the worker.

It needs the rights to read and to create objects.`,
		Example: "fencepost group drain s3://bucket/orders 3f2a91c0",
		Args:    wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			return a.drain(cmd.Context(), st, args[1], !noWait)
		},
	}
	c.Flags().BoolVar(&noWait, "no-wait", false, "return as soon as the store has the call")
	a.jsonFlag(c)
	return c
}

// follow calls f with the group's status, and again after each change, until f is done.
func (a *app) follow(ctx context.Context, st store.Store, f func(*group.Status) (done bool, err error)) error {
	for s, err := range group.Observe(ctx, st, &group.Options{Logger: a.log.Named("group")}) {
		if err != nil {
			return err
		}
		if done, err := f(&s); done || err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (a *app) drain(ctx context.Context, st store.Store, who string, wait bool) error {
	var m group.Member
	err := a.follow(ctx, st, func(s *group.Status) (done bool, err error) {
		m, err = find(s, who)
		return true, err
	})
	if err != nil {
		return err
	}
	if err := group.Drain(ctx, st, m.Name, nil); err != nil {
		return err
	}
	left := func(done bool) error {
		return a.print(struct {
			Member   string `json:"member"`
			Identity string `json:"identity"`
			Left     bool   `json:"left"`
		}{m.Name, m.Identity, done})
	}
	switch {
	case !wait && a.json:
		return left(false)
	case !wait:
		return a.write(fmt.Appendf(nil, "%s (%s) is told to leave; it owns %s\n", m.Identity, short(m.Name), nPartitions(m.Owned)))
	}
	last := ""
	err = a.follow(ctx, st, func(s *group.Status) (done bool, err error) {
		i := slices.IndexFunc(s.Members, func(x group.Member) bool { return x.Name == m.Name })
		if i < 0 || s.Members[i].Expired || s.Members[i].Owned == 0 && len(s.Moving) == 0 {
			return true, nil
		}
		if now := fmt.Sprintf("it owns %s; %s moving", nPartitions(s.Members[i].Owned), nPartitions(len(s.Moving))); now != last {
			a.con.note("%s", now)
			last = now
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	if a.json {
		return left(true)
	}
	return a.write(fmt.Appendf(nil, "%s (%s) has left\n", m.Identity, short(m.Name)))
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
	return group.Member{}, usage("%q may be any of %s; give the name of one", who, strings.Join(names, ", "))
}

// groupDoc is what group status prints.
type groupDoc struct {
	Name       string      `json:"name,omitempty"`
	Partitions int         `json:"partitions"`
	Validity   string      `json:"validity"`
	Assignment uint64      `json:"assignment"`
	Organiser  string      `json:"organiser,omitempty"`
	Members    []memberDoc `json:"members"`
	// Owners has the index in Members of each partition's owner, or -1.
	Owners  []int `json:"owners"`
	Moving  []int `json:"moving"`
	Unowned []int `json:"unowned"`
	GivenUp []int `json:"given_up"`
}

type memberDoc struct {
	Name     string `json:"name"`
	Identity string `json:"identity,omitempty"`
	Weight   uint64 `json:"weight"`
	Owned    int    `json:"owned"`
	State    string `json:"state"`
	Data     string `json:"data,omitempty"`
}

func describe(s *group.Status) groupDoc {
	// Lists that are empty are [] in JSON.
	d := groupDoc{
		Name: s.Name, Partitions: s.Partitions, Validity: s.Validity.String(), Assignment: s.Number,
		Members: []memberDoc{}, Owners: append([]int{}, s.Owners...), Moving: append([]int{}, s.Moving...), Unowned: []int{}, GivenUp: append([]int{}, s.GivenUp...),
	}
	for _, m := range s.Members {
		state := "live"
		switch {
		case m.Expired:
			state = "expired"
		case m.Lapsed:
			state = "lapsed"
		case m.Leaving:
			state = "leaving"
		case d.Organiser == "":
			d.Organiser = m.Name
		}
		d.Members = append(d.Members, memberDoc{m.Name, m.Identity, m.Weight, m.Owned, state, m.Data})
	}
	for p := range s.Partitions {
		if p >= len(s.Owners) || s.Owners[p] < 0 {
			d.Unowned = append(d.Unowned, p)
		}
	}
	return d
}

func groupTable(d *groupDoc) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("group", "%s; %s, validity %s; assignment %d", cmp.Or(d.Name, "without a name"), nPartitions(d.Partitions), d.Validity, d.Assignment)
	organiser := "nobody"
	owned := make([][]int, len(d.Members))
	for p, i := range d.Owners {
		if i >= 0 {
			owned[i] = append(owned[i], p)
		}
	}
	for _, m := range d.Members {
		if m.Name == d.Organiser {
			organiser = fmt.Sprintf("%s (%s)", m.Identity, short(m.Name))
		}
	}
	row("organiser", "%s", organiser)
	list := func(name string, ps []int, why string) {
		if len(ps) > 0 {
			row(name, "%s: %s%s", nPartitions(len(ps)), runs(ps), why)
		}
	}
	list("moving", d.Moving, "; waiting until the last owner has stopped")
	list("unowned", d.Unowned, "")
	list("given up", d.GivenUp, "; the work fails or hangs")
	_ = w.Flush()
	if len(d.Members) == 0 {
		return b.Bytes()
	}
	b.WriteByte('\n')
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tIDENTITY\tSTATE\tWEIGHT\tOWNS\tPARTITIONS\tDATA")
	for i, m := range d.Members {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", short(m.Name), cmp.Or(m.Identity, "-"), m.State, m.Weight, m.Owned, cmp.Or(runs(owned[i]), "-"), data(m.Data))
	}
	_ = w.Flush()
	return b.Bytes()
}

// short is what people need of a name. Eight digits tell some thousands of members apart.
func short(name string) string { return name[:min(8, len(name))] }

func nPartitions(n int) string {
	if n == 1 {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", n)
}

// runs writes sorted numbers as people do: 0-5, 8, 11-13. It ends after some.
func runs(ps []int) string {
	var all []string
	for i := 0; i < len(ps); {
		j := i + 1
		for j < len(ps) && ps[j] == ps[j-1]+1 {
			j++
		}
		switch {
		case len(all) == 4:
			return strings.Join(append(all, "…"), ", ")
		case j == i+1:
			all = append(all, fmt.Sprint(ps[i]))
		default:
			all = append(all, fmt.Sprintf("%d-%d", ps[i], ps[j-1]))
		}
		i = j
	}
	return strings.Join(all, ", ")
}

// data is what a member publishes, short and without control characters.
func data(s string) string {
	if s == "" {
		return "-"
	}
	s = strings.Trim(fmt.Sprintf("%q", s), `"`)
	if r := []rune(s); len(r) > 40 {
		return string(r[:39]) + "…"
	}
	return s
}
