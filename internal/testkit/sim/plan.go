package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

// Plan is what a history is made of. [NewPlan] draws one from a seed.
type Plan struct {
	Seed uint64
	// Nodes of each role.
	Writers, Compactors, Readers int
	// Elected nodes get their epochs from the election, others from a counter.
	// Twins are given the same epoch now and then.
	Elected, Twins bool
	// Terms each writer leads, and how many appends it makes at most in each.
	Terms, Appends int
	// Snapshots and Backups are nodes that hold pins: those of a snapshot, and pins with
	// a name. With Edits the writers change the table too.
	Snapshots, Backups int
	Edits              bool
	// Retain makes compactors give up the oldest records.
	Retain bool
	// Hedge and Linger are the writers' options. Hedged writers append LeastAppends
	// more, since it takes some to know what is late.
	Hedge        float64
	Linger       time.Duration
	LeastAppends int
	// Eager compactors are quicker than everybody else.
	Eager bool
	// Lives is how often a node is started again after a crash.
	Lives int
	// Steps is how many acts there are before the history is brought to its end.
	Steps int
	// Grace of the log; 0 means none.
	Grace time.Duration
	// Content makes versions a function of the body; Walks makes listings that are
	// not atomic; Resolution is that of the store's clock, 0 if it tells no time.
	Content, Walks bool
	// Page is how many names a page of a listing has, each a request; 0 means that a
	// listing is one request, as it is where there are fewer than a thousand.
	Page       int
	Resolution time.Duration
	// Careless stores ignore the conditions of writes: what a probe would refuse.
	Careless bool
	// Bent is the name of something that is done wrong; see bends.
	Bent string
	// Apart lets each node's clock go on its own when its timers fire. Brief leaves out
	// what takes long and is checked elsewhere.
	Apart, Brief bool
	// Patient clients wait between attempts.
	Patient bool

	// Chances, each step, that a request is answered with a fault, that a write lands
	// late, that a new request is held back, that a node is paused or crashes, that
	// its clock is bent, that time passes while requests are under way.
	Fault, Late, Hold, Pause, Crash, Bend, Hurry float64
}

// NewPlan draws a plan.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	some := func(most float64) float64 { // none, or anything up to most
		if r.IntN(4) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	p := Plan{
		Seed: seed, Writers: 2 + r.IntN(2), Compactors: 1 + r.IntN(2), Readers: 1 + r.IntN(2),
		Elected: r.IntN(3) == 0, Twins: r.IntN(5) == 0, Terms: 2 + r.IntN(5), Appends: 1 + r.IntN(1<<(1+r.IntN(3))), Lives: r.IntN(3), Eager: r.IntN(2) == 0,
		Steps: 150 + r.IntN(400), Content: r.IntN(2) == 0, Patient: r.IntN(4) == 0,
		Fault: some(0.15), Late: some(0.1), Hold: some(0.4), Pause: some(0.02), Crash: some(0.015), Bend: some(0.01), Hurry: some(0.1),
	}
	p.Resolution = []time.Duration{time.Nanosecond, time.Millisecond, time.Second, 0}[r.IntN(4)]
	if r.IntN(3) == 0 {
		p.Grace = manifest.MinGrace
		p.Walks = r.IntN(2) == 0
	}
	if r.IntN(3) == 0 {
		p.Snapshots, p.Readers, p.Hurry = 1+r.IntN(2), r.IntN(2), max(p.Hurry, 0.05)
	}
	if r.IntN(6) == 0 {
		p.Backups = 1
	}
	p.Edits = r.IntN(2) == 0
	if r.IntN(4) == 0 {
		p.Linger = time.Duration(1+r.IntN(20)) * time.Millisecond
	}
	if r.IntN(8) == 0 {
		p.Hedge, p.LeastAppends = []float64{0.5, 0.8, 0.96}[r.IntN(3)], 40
		p.Steps += 250
	}
	p.Retain = r.IntN(4) == 0
	if r.IntN(5) == 0 {
		p.Page, p.Walks = 1+r.IntN(3), false
	}
	return p
}

// anyFormat is what an Init makes, once, since the probe takes its time.
var anyFormat = sync.OnceValue(func() manifest.Format {
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: -1})
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	f.Probe = nil // nobody needs it, and everybody parses it
	return f
})

// format returns the format.json of the plan's log.
func (p Plan) format() []byte {
	f := anyFormat()
	f.Grace = manifest.Duration(p.Grace)
	b, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return b
}
