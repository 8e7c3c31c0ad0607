// Package group has the verbs group status, group drain and group retry.
package group

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	return kit.Parent("group VERB URL", "show or change a group of workers that share partitions",
		`A group is what package group keeps in a store: workers share partitions, and each
partition has one owner. The URL is the one that the workers use.`,
		statusCommand(k), drainCommand(k), retryCommand(k))
}

func statusCommand(k *kit.Kit) *cobra.Command {
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
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := k.Store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			var last []byte
			return follow(cmd.Context(), k, st, func(s *group.Status) (done bool, err error) {
				doc := survey.GroupOf(s)
				b, err := json.Marshal(doc)
				switch same := bytes.Equal(b, last); {
				case err != nil || same:
				case k.JSON && watch:
					err = k.Write(append(bytes.Clone(b), '\n'))
				case k.JSON:
					err = k.Print(doc)
				case watch:
					err = k.Write(append(groupTable(doc), '\n'))
				default:
					err = k.Write(groupTable(doc))
				}
				last = b
				return !watch, err
			})
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "print again after each change")
	k.JSONFlag(c)
	return c
}

// follow calls f with the group's status, and again after each change, until f is done. It goes on after
// an outage of the store, and then calls f also if nothing has changed.
func follow(ctx context.Context, k *kit.Kit, st store.Store, f func(*group.Status) (done bool, err error)) error {
	for seen := false; ; {
		var failed error
		for s, err := range group.Observe(ctx, st, &group.Options{Logger: k.Log.Named("group")}) {
			if failed = err; err != nil {
				break
			}
			seen = true
			if done, err := f(&s); done || err != nil {
				return err
			}
		}
		if !seen && ctx.Err() == nil {
			return failed
		}
		if err := k.Again(ctx, failed, "looking", kit.AwaitPause); err != nil {
			return err
		}
	}
}

func groupTable(d *survey.Group) []byte {
	organiser := "nobody"
	owned := make([][]int, len(d.Members))
	for p, i := range d.Owners {
		if i >= 0 {
			owned[i] = append(owned[i], p)
		}
	}
	for _, m := range d.Members {
		if m.Name == d.Organiser {
			organiser = fmt.Sprintf("%s (%s)", m.Identity, Short(m.Name))
		}
	}
	b := kit.Rows(func(row func(name, format string, args ...any)) {
		row("group", "%s; %s, validity %v; assignment %d", cmp.Or(d.Name, "without a name"), kit.Plural(d.Partitions, "partition"), survey.Span(d.Validity), d.Assignment)
		row("organiser", "%s", organiser)
		list := func(name string, ps []int, why string) {
			if len(ps) > 0 {
				row(name, "%s: %s%s", kit.Plural(len(ps), "partition"), runs(ps), why)
			}
		}
		list("moving", d.Moving, "; waiting until the last owner has stopped")
		list("unowned", d.Unowned, "")
		list("given up", d.GivenUp, "; the work fails or hangs")
	})
	if len(d.Members) == 0 {
		return b
	}
	return slices.Concat(b, []byte("\n"), kit.Aligned(func(w io.Writer) {
		fmt.Fprintln(w, "MEMBER\tIDENTITY\tSTATE\tWEIGHT\tOWNS\tPARTITIONS\tDATA")
		for i, m := range d.Members {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", Short(m.Name), cmp.Or(kit.Printable(m.Identity), "-"), m.State, m.Weight, m.Owned, cmp.Or(runs(owned[i]), "-"), data(m.Data))
		}
	}))
}

// Short is what people need of a name. Eight digits tell some thousands of members apart.
func Short(name string) string { return name[:min(8, len(name))] }

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
