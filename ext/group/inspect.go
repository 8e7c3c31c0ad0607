package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// fault is one thing that is wrong with the objects of a group.
type fault struct {
	Key, What string
}

// inspected is what inspect has found.
type inspected struct {
	// Partitions is how many partitions there are, by group.json and by the newest assignment that can be read.
	Partitions int
	// Number is that of the newest assignment; 0 if there is none.
	Number uint64
	// Highest is the highest epoch of a token that the assignments so far can have given out.
	Highest fence.Epoch
	// Members is how many the newest assignment lists.
	Members int
	// Objects and Bytes were read.
	Objects int
	Bytes   int64
	// Faults are damage, by key.
	Faults []fault
	// Strange are the keys below the group's that no group has.
	Strange []string
}

// inspect reads every object of the group in st, without those of its partitions' logs, and returns what is
// damaged or missing. It changes nothing, and may run beside members: what seems wrong is looked at
// twice. It reads each object once, eight at a time.
//
// Errors: [ErrNoGroup] if no object of a group is there; fence.ErrFormat if a newer version of this project has
// written one; errors of the store. Damage is in Faults.
func inspect(ctx context.Context, st store.Store, settle *store.SettleOptions) (*inspected, error) {
	first, err := (&check{st: st, settle: settle}).run(ctx)
	if err != nil || len(first.Faults) == 0 {
		return first, err
	}
	second, err := (&check{st: st, settle: settle}).run(ctx)
	if err != nil {
		return nil, err
	}
	second.Faults = slices.DeleteFunc(second.Faults, func(f fault) bool {
		return !slices.ContainsFunc(first.Faults, func(o fault) bool { return o.Key == f.Key })
	})
	return second, nil
}

// check is one pass.
type check struct {
	st     store.Store
	settle *store.SettleOptions

	mu      sync.Mutex
	found   inspected
	format  *format
	newest  *assign.Assignment
	members map[fence.ID]bool // whose objects are there
	top     uint64            // the highest number of an assignment in the listing, also of a damaged one
	later   []reference
}

// reference is an object that names an assignment.
type reference struct {
	key    string
	number uint64
	group  fence.ID // of the assignment, if the object says that
}

// checksAtOnce is how many objects are read at the same time. An assignment may have 8 MiB.
const checksAtOnce = 8

func (c *check) run(ctx context.Context) (*inspected, error) {
	c.members = map[fence.ID]bool{}
	// The hint is read before the listing begins. So the listing shows the assignment that the hint names, or a
	// later one.
	if err := c.read(ctx, member.HeadKey); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(checksAtOnce)
	listed, isFormat := 0, false
	for info, err := range store.ListAll(ctx, c.st, member.Prefix, nil, c.settle) {
		if err != nil {
			return nil, errors.Join(g.Wait(), err)
		}
		listed++
		isFormat = isFormat || info.Key == member.FormatKey
		if name, rest, ok := member.ParseKey(member.MemberPrefix, info.Key); ok && rest == "" {
			c.mu.Lock()
			c.members[name] = true
			c.mu.Unlock()
		}
		if n, ok := member.ParseAssignKey(info.Key); ok {
			c.top = max(c.top, n)
		}
		if info.Key != member.HeadKey {
			g.Go(func() error { return c.read(gctx, info.Key) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if listed == 0 {
		_, _, err := readFormat(ctx, c.st, c.settle)
		return nil, cmp.Or(err, ErrNoGroup)
	}
	if !isFormat {
		c.fault(member.FormatKey, "it is missing, but there are other objects of a group; no member can join")
	}
	c.together()
	slices.SortFunc(c.found.Faults, func(a, b fault) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.What, b.What)) })
	slices.Sort(c.found.Strange)
	return &c.found, nil
}

func (c *check) fault(key, what string) { c.found.Faults = append(c.found.Faults, fault{key, what}) }

// read reads one object and checks it alone. One that is gone was pruned meanwhile.
func (c *check) read(ctx context.Context, key string) error {
	body, _, err := store.Read(ctx, c.st, key, &store.ReadOptions{Limit: limit(key), Settle: c.settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil && !errors.Is(err, store.ErrTooLarge):
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.Objects++
	c.found.Bytes += int64(len(body))
	if err == nil {
		err = c.object(key, body)
	}
	if err == nil || errors.Is(err, fence.ErrFormat) {
		return err
	}
	text := strings.ReplaceAll(err.Error(), fence.ErrCorrupt.Error()+": ", "")
	c.fault(key, strings.ReplaceAll(text, key+": ", ""))
	return nil
}

// object checks the object under key, and notes to which assignment it refers.
func (c *check) object(key string, body []byte) error {
	if key == member.FormatKey {
		f, err := decodeFormat(body)
		if err == nil {
			c.format = &f
		}
		return err
	}
	if name, rest, ok := member.ParseKey(member.ReadyPrefix, key); ok && name != (fence.ID{}) {
		n, isNumber := member.ParseNumber(rest)
		if !isNumber {
			c.found.Strange = append(c.found.Strange, key)
			return nil
		}
		c.later = append(c.later, reference{key: key, number: n})
		return document.Decode(key, body, &signWire{})
	}
	if !known(key) {
		c.found.Strange = append(c.found.Strange, key)
		return nil
	}
	doc, err := decode(key, body)
	if err != nil {
		return err
	}
	switch d := doc.(type) {
	case *member.Head:
		c.later = append(c.later, reference{key, d.Number, d.Group})
	case *member.Ack:
		c.later = append(c.later, reference{key: key, number: d.Number})
	case *assign.Assignment:
		if n, _ := member.ParseAssignKey(key); n != d.Number() {
			return document.Corrupt(key, "it has number %d inside", d.Number())
		}
		if c.newest == nil || c.newest.Number() < d.Number() {
			c.newest = d
		}
	}
	return nil
}

// known reports whether a group has objects of this name, but for group.json and ready.
func known(key string) bool {
	if key == member.HeadKey {
		return true
	}
	if _, ok := member.ParseAssignKey(key); ok {
		return true
	}
	if _, rest, ok := member.ParseKey(member.MemberPrefix, key); ok {
		return rest == ""
	}
	for _, prefix := range []string{member.CallPrefix, member.AckPrefix} {
		if _, rest, ok := member.ParseKey(prefix, key); ok {
			return rest != ""
		}
	}
	return false
}

// together checks what the objects say of one another.
func (c *check) together() {
	c.found.Highest = assign.MaxOpenings - 1
	if c.format != nil {
		c.found.Partitions = c.format.Partitions
		c.found.Highest += c.format.Base
	}
	a := c.newest
	if a != nil {
		key := member.AssignKey(a.Number())
		switch f := c.format; {
		case f == nil:
		case a.Group() != f.Group:
			c.fault(key, "it belongs to another group than group.json")
		case a.Base() != f.Base || a.Partitions() > f.Partitions:
			c.fault(member.FormatKey, "it is older than the newest assignment, which has another base or more partitions")
		}
		c.found.Number, c.found.Members, c.found.Partitions = a.Number(), len(a.Members()), max(c.found.Partitions, a.Partitions())
		c.found.Highest = a.Base() + fence.Epoch(a.Number()+1)*assign.MaxOpenings - 1
		for _, m := range a.Members() {
			if !c.members[m.Name] {
				c.fault(member.Key(m.Name), "it is missing, but the newest assignment lists this member; the others take it for dead")
			}
		}
	}
	lost := map[uint64]string{}
	for _, r := range c.later {
		// A hint that was put late, by a member of a group that was deleted, says nothing of this one.
		other := c.format != nil && r.group != (fence.ID{}) && r.group != c.format.Group
		if r.number > c.top && !other {
			lost[r.number] = max(lost[r.number], r.key)
		}
	}
	for n, key := range lost {
		c.fault(member.AssignKey(n), "it is missing, but "+key+" refers to it; a member that begins now does not know who owns what")
	}
}
