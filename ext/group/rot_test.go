package group_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

var every = flag.Int("every", test.Of(499, 1), "TestRot tries one in so many ways to damage a group; 1 takes minutes")

var users = flag.Int("users", 16, "one in so many of these is also met by members")

// objects are those of a group in the middle of its life, with every kind, and the highest token of
// each partition so far.
type objects struct {
	bodies map[string][]byte
	top    map[int]fence.Epoch
}

func contents(t *testing.T, st store.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.ListAll(context.Background(), st, "", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := store.Read(context.Background(), st, info.Key, &store.ReadOptions{Limit: 1 << 24})
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = body
	}
	return all
}

// fullWorld brings a world to where its group has an object of each kind: a worker has just joined, another
// leaves and does not end, and one partition's work fails.
func fullWorld(w *world) (workers []*worker) {
	hangs := make(chan struct{})
	w.Cleanup(func() { close(hangs) })
	for i := range 3 {
		workers = append(workers, w.worker(fmt.Sprint("w", i), func(x *worker) {
			x.opts.Drain = 10 * time.Minute
			x.work = func(ctx context.Context, p *group.Partition) error {
				if p.Number() == 5 {
					return errors.New("it fails")
				}
				<-ctx.Done()
				if x.name == "w2" && p.Number()%2 == 1 {
					<-hangs
				}
				return context.Cause(ctx)
			}
		}))
	}
	time.Sleep(3 * time.Minute)
	workers = append(workers, w.worker("late"))
	time.Sleep(20 * time.Second)
	workers[2].cancel(errStop)
	time.Sleep(10 * time.Second)
	return workers
}

func kindOf(key string) string {
	rest := strings.TrimPrefix(key, member.Prefix)
	dir, _, deeper := strings.Cut(rest, "/")
	switch {
	case !deeper:
		return rest
	case dir == "call" && strings.HasSuffix(key, "joined.json"):
		return "call/joined"
	case dir == "call" && strings.HasSuffix(key, "leaving.json"):
		return "call/leaving"
	}
	return dir
}

// full returns the objects of such a world.
func full(t *testing.T) (o objects) {
	t.Helper()
	inWorld(t, 12, func(w *world) {
		workers := fullWorld(w)
		w.mu.Lock()
		o = objects{contents(w.T, w.mem), maps.Clone(w.top)}
		w.mu.Unlock()
		for _, x := range workers {
			x.crash()
		}
	})
	kinds := map[string]int{}
	for key := range o.bodies {
		kinds[kindOf(key)]++
	}
	t.Logf("objects: %v", kinds)
	if want := []string{"ack", "assign", "call", "call/joined", "call/leaving", "group.json", "head.json", "member", "ready"}; !slices.Equal(slices.Sorted(maps.Keys(kinds)), want) {
		t.Fatalf("there are objects of the kinds %v, want %v", kinds, want)
	}
	return o
}

// harm is one way to damage one object.
type harm struct {
	key, what string
	body      []byte // nil: removed
}

func (h harm) String() string { return h.key + " " + h.what }

// harms calls do with each n-th way to damage an object, and always with some.
func (o objects) harms(n int, do func(harm)) {
	i := 0
	nth := func() bool { i++; return i%n == 0 }
	for _, key := range slices.Sorted(maps.Keys(o.bodies)) {
		whole := o.bodies[key]
		do(harm{key, "removed", nil})
		for at := range whole {
			if nth() || at == 0 || at == len(whole)-1 {
				do(harm{key, fmt.Sprintf("cut to %d of %d bytes", at, len(whole)), whole[:at:at]})
			}
			for bit := range 8 {
				if nth() {
					b := bytes.Clone(whole)
					b[at] ^= 1 << bit
					do(harm{key, fmt.Sprintf("with bit %d of byte %d of %d flipped", bit, at, len(whole)), b})
				}
			}
		}
	}
}

// silent returns why nobody can tell that an object is gone; empty if Check must. docs/groups.md says the same.
func (o objects) silent(t *testing.T, key string) string {
	t.Helper()
	newest := ""
	for k := range o.bodies {
		if strings.HasPrefix(k, member.AssignPrefix) {
			newest = max(newest, k)
		}
	}
	switch {
	case key == member.HeadKey:
		return "it is a hint, which the members write again"
	case strings.HasPrefix(key, member.AssignPrefix) && key != newest:
		return "only the newest assignment counts"
	case strings.HasPrefix(key, member.ReadyPrefix), strings.HasPrefix(key, member.AckPrefix), strings.HasPrefix(key, member.CallPrefix):
		return "it may come at any time, and nothing says that it was there"
	}
	return ""
}

// TestRot damages a group with everything in it, in each way that one disk can. Check must find it.
func TestRot(t *testing.T) {
	o := full(t)
	st := memstore.New(nil)
	put := func(key string, body []byte) {
		if _, err := st.Put(t.Context(), key, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	for key, body := range o.bodies {
		put(key, body)
	}
	got, err := group.Inspect(t.Context(), st)
	if err != nil || len(got.Faults) > 0 || len(got.Strange) > 0 || got.Objects != len(o.bodies) || got.Partitions != 12 || got.Number == 0 || got.Members < 3 {
		t.Fatalf("the whole group: %+v, %v", got, err)
	}
	for p, token := range o.top {
		if token > got.Highest {
			t.Errorf("partition %d was opened with token %d, and none above %d was given", p, token, got.Highest)
		}
	}
	tried := 0
	o.harms(*every, func(h harm) {
		if t.Failed() {
			return
		}
		if tried++; h.body == nil {
			if err := store.DeleteAll(t.Context(), st, []string{h.key}, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			put(h.key, h.body)
		}
		got, err := group.Inspect(t.Context(), st)
		named := err == nil && slices.ContainsFunc(got.Faults, func(f group.Fault) bool { return f.Key == h.key })
		switch why := o.silent(t, h.key); {
		case err != nil:
			t.Errorf("%v: %v", h, err)
		case h.body == nil && why != "":
			if len(got.Faults) > 0 {
				t.Errorf("%v: %v, although %s", h, got.Faults, why)
			}
		case !named:
			t.Errorf("%v: faults %v", h, got.Faults)
		}
		put(h.key, o.bodies[h.key])
	})
	t.Logf("%d kinds of damage", tried)
}

// A hint that was put late by a member of a group that was deleted says nothing of the group that was made anew.
func TestCheckTheHintOfAnotherGroup(t *testing.T) {
	st := memstore.New(nil)
	inWorld(t, 3, func(w *world) {
		a := w.worker("a")
		time.Sleep(time.Minute)
		for key, body := range contents(w.T, w.mem) {
			fixture.Put(w.T, st, key, body)
		}
		w.end(a)
	})
	for _, c := range []struct {
		other  bool
		faults int
	}{{false, 1}, {true, 0}} {
		var h struct {
			Format int      `json:"format"`
			Nonce  string   `json:"nonce"`
			Group  fence.ID `json:"group"`
			Number uint64   `json:"number"`
		}
		old := contents(t, st)[member.HeadKey]
		if err := document.Decode(member.HeadKey, old, &h); err != nil || h.Group == (fence.ID{}) || h.Number != 1 {
			t.Fatalf("%+v, %v", h, err)
		}
		h.Number = 57
		if c.other {
			h.Group[3]++
		}
		hint, err := document.Encode(member.HeadKey, &h)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, st, member.HeadKey, hint)
		if got, err := group.Inspect(t.Context(), st); err != nil || len(got.Faults) != c.faults || got.Number != 1 {
			t.Errorf("a hint of another group, %v: %+v, %v", c.other, got, err)
		}
		fixture.Put(t, st, member.HeadKey, old)
	}
}

// TestRotAndMembers: members that meet a damaged object never own a partition together, and never get a
// token again. They end with an error that names the object, or share all partitions.
func TestRotAndMembers(t *testing.T) {
	o := full(t)
	n, step, few := 0, *users**every, test.Of(4, 1)
	o.harms(step, func(h harm) {
		if n++; t.Failed() || n%few > 0 {
			return
		}
		// Those who begin now know only what the store has.
		inStore(t, o, h, func(w *world) {
			a, b := w.worker("a"), w.worker("b")
			time.Sleep(6 * time.Minute)
			w.meets(h, a, b)
			w.end(a, b)
		})
	})
	t.Logf("%d kinds of damage", n/few)
}

// inStore runs a test on a store with a damaged object.
func inStore(t *testing.T, o objects, h harm, test func(*world)) {
	t.Helper()
	inFaultyWorld(t, 12, faultstore.Options{}, func(w *world) {
		for key, body := range o.bodies {
			if key == h.key {
				body = h.body
			}
			if body == nil {
				if err := store.DeleteAll(w.Context(), w.mem, []string{key}, nil); err != nil {
					w.Fatal(err)
				}
				continue
			}
			fixture.Put(w.T, w.mem, key, body)
		}
		w.top = maps.Clone(o.top)
		test(w)
	})
}

// meets wants the workers to own all, or to name the object.
func (w *world) meets(h harm, workers ...*worker) {
	w.Helper()
	sum, errs := 0, ""
	for _, x := range workers {
		sum += w.owned(x)
		x.mu.Lock()
		for _, err := range x.errs {
			errs += fmt.Sprintln(err)
		}
		x.mu.Unlock()
	}
	if sum < w.partitions && !strings.Contains(errs, h.key) {
		w.Errorf("%v: %d partitions have an owner, and nobody says why: %s", h, sum, errs)
	}
}
