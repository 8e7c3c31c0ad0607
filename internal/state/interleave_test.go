package state

import (
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// Update makes few requests: LIST, GET, PUT, perhaps a GET to settle it, LIST,
// GET. TestInterleavings lets the others act before any two of them, in every
// combination, with every fault on the PUT, and checks what is true afterwards.

// actors: a letter makes one step of somebody else.
//
//	b  the other role publishes an update
//	s  a successor of our role publishes one, in a later epoch
//	t  a twin publishes one: another process with our token
//	p  everything but the newest manifest is pruned
//	l  what is late lands
//	z  a zombie of the other role, which read the version that is highest now, puts
//	   its successor into the store when the next z comes (a create: it lands in a
//	   hole or not at all)
var scripts = []string{"", "b", "bp", "bbp", "s", "sp", "t", "tp", "l", "bpl", "pl", "zbbpz", "bbplb"}

var putFaults = map[string]faultstore.Fault{
	"none":        {},
	"lost reply":  {Err: faultstore.ErrTimeout},
	"lost":        {Drop: true, Err: faultstore.ErrReset},
	"echo":        {Err: faultstore.ErrEcho},
	"late":        {Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}},
	"twice":       {Late: &faultstore.Late{}},
	"lost, twice": {Err: faultstore.ErrTimeout, Late: &faultstore.Late{Copies: 2}},
}

// share is which part of all combinations is tried: 1 means all, which takes half
// a minute; there are 20,000.
var share = flag.Int("share", 40, "try one in so many interleavings")

func TestInterleavings(t *testing.T) {
	ended := map[string]int{}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, fault := range slices.Sorted(maps.Keys(putFaults)) {
		for _, first := range scripts {
			for _, second := range scripts {
				if rng.IntN(*share) > 0 {
					continue
				}
				for i := 1; ; i++ {
					last := 0
					for j := i + 1; j == i+1 || j <= last; j++ {
						w := &interleaving{t: t, fault: fault, at: map[int]string{i: first, j: second}}
						ended[w.run()]++
						last = w.requests
						if t.Failed() {
							t.Fatalf("fault %q, %q before request %d, %q before request %d", fault, first, i, second, j)
						}
						if second == "" {
							break // it does not matter where nothing happens
						}
					}
					if last <= i || first == "" {
						break // there was no such request
					}
				}
			}
		}
	}
	t.Log(ended)
	if ended["applied"] == 0 || ended["fenced"] == 0 {
		t.Error("these interleavings prove nothing")
	}
}

type interleaving struct {
	t     *testing.T
	fault string
	at    map[int]string

	requests int // of the update
	inner    *memstore.Store
	faults   *faultstore.Store
	log      *Log // of an onlooker, who must never see the history change
	past     []string
	others   []string // what others have published
	other    *Updater
	twin     *Updater
	epoch    uint64 // of the latest successor
	zombie   *Manifest
}

func (w *interleaving) run() string {
	w.inner = memstore.New(nil)
	w.faults = faultstore.New(w.inner, nil)
	w.log = testOpen(w.inner)
	w.others = apply(w.t, w.inner, layout.Writer, 1, 2)
	w.other = testUpdater(w.t, w.inner, layout.Compactor, 1)
	w.twin = testUpdater(w.t, w.inner, layout.Writer, 1)
	w.epoch = 1
	u := testUpdater(w.t, w.faults, layout.Writer, 1)
	id := uuid.NewString()
	w.faults.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: putFaults[w.fault]}))
	w.faults.SetBefore(func(context.Context, faultstore.Op) {
		w.requests++
		w.act(w.at[w.requests])
	})
	got, err := u.Update(context.Background(), effect(id))
	w.faults.SetBefore(nil)
	// Whatever is still on its way lands, in and out of holes.
	w.act("lpl")
	m := newest(w.t, w.inner)
	w.look()
	ids := effects(m)
	times := count(ids, id)
	for _, other := range w.others {
		if count(ids, other) != 1 {
			w.t.Errorf("another's update is there %d times", count(ids, other))
		}
	}
	if len(ids) != len(w.others)+times {
		w.t.Errorf("%d effects of %d updates and ours", len(ids), len(w.others))
	}
	switch {
	case err == nil:
		if times != 1 || count(effects(got), id) != 1 {
			w.t.Errorf("applied, and there %d times", times)
		}
		return "applied"
	case errors.Is(err, fence.ErrFenced):
		var by *fence.FencedError
		twin := errors.As(err, &by) && by.By == by.Epoch
		if times > 1 || !twin && w.epoch == 1 || m.Roles[layout.Writer].Epoch < by.By {
			w.t.Errorf("%v, and there %d times", err, times)
		}
		return "fenced"
	}
	w.t.Errorf("it ended with %v, applied %d times", err, times)
	return "failed"
}

// look reads the newest as an onlooker does: what was once there stays.
func (w *interleaving) look() {
	m, err := w.log.Newest(context.Background())
	if err != nil {
		w.t.Error(err)
		return
	}
	now := effects(m)
	if len(now) < len(w.past) || !slices.Equal(now[:len(w.past)], w.past) {
		w.t.Errorf("the onlooker saw %s and then %s", short(w.past), short(now))
	}
	w.past = now
}

func (w *interleaving) act(script string) {
	for _, c := range script {
		id := uuid.NewString()
		var err error
		switch c {
		case 'b':
			_, err = w.other.Update(context.Background(), effect(id))
		case 's':
			w.epoch++
			u := testUpdater(w.t, w.inner, layout.Writer, fence.Epoch(w.epoch))
			_, err = u.Update(context.Background(), effect(id))
		case 't':
			_, err = w.twin.Update(context.Background(), effect(id))
			if errors.Is(err, fence.ErrFenced) {
				continue // by us, or by a successor, before it changed anything: see run
			}
		case 'p':
			mustPrune(w.t, w.inner)
			id = ""
		case 'l':
			w.faults.Release(context.Background(), nil)
			id = ""
		case 'z':
			w.haunt()
			id = ""
		}
		if err != nil {
			w.t.Errorf("%c: %v", c, err)
		}
		if id != "" {
			w.others = append(w.others, id)
		}
		w.look()
	}
}

// haunt remembers the newest manifest, and the next time creates what would have
// followed.
func (w *interleaving) haunt() {
	if w.zombie == nil {
		w.zombie = newest(w.t, w.inner)
		return
	}
	next := w.zombie.clone()
	w.zombie = nil
	next.Version++
	next.Nonce = fence.ID(uuid.New())
	next.Roles["ghost"] = RoleState{Epoch: 1, Update: 1, Nonce: next.Nonce}
	if err := effect(uuid.NewString())(&Change{next}); err != nil {
		w.t.Error(err)
	}
	if next.Version == newest(w.t, w.inner).Version+1 {
		return // it would be in time: an update like any other
	}
	_, err := store.Create(context.Background(), w.inner, layout.ManifestKey(next.Version), encoded(w.t, next), &store.WriteOptions{Settle: quick})
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		w.t.Error(err)
	}
}
