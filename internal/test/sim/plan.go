package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
)

// Plan describes a history. [NewPlan] draws one from a seed.
type Plan struct {
	Seed uint64
	// Writers, Compactors and Readers are numbers of nodes.
	Writers, Compactors, Readers int
	// Elected nodes get their epochs from the election, others from a counter. Twins
	// gives two nodes the same epoch from time to time.
	Elected, Twins bool
	// Terms is the number of terms of each writer, Appends the most appends in one.
	Terms, Appends int
	// Snapshots and Backups are numbers of nodes that hold pins: the pins of snapshots,
	// and pins with a name. With Edits, writers change the table too.
	Snapshots, Backups int
	Edits              bool
	// Retain makes compactors truncate the log.
	Retain bool
	// Hedge and Linger are options of the writers. LeastAppends adds to the appends of a
	// term, because a writer hedges only after it has measured some writes.
	Hedge        float64
	Linger       time.Duration
	LeastAppends int
	// Eager compactors are faster than all other nodes.
	Eager bool
	// Lives is how often a node is started again after a crash.
	Lives int
	// Steps is the number of acts before the history is brought to its end.
	Steps int
	// Grace of the log. 0: none.
	Grace time.Duration
	// Content makes an object's version a hash of its body. Walks makes listings that are
	// not atomic. Resolution is that of the store's clock, 0 if the store reports no
	// time.
	Content, Walks bool
	// Page is the number of names in one page of a listing; each page is a request. 0: a
	// listing is one request, as in a store with up to a thousand names.
	Page       int
	Resolution time.Duration
	// Careless stores ignore the conditions of writes. The probe would refuse such a
	// store.
	Careless bool
	// Bent is the name of a deliberate fault; see bends.
	Bent string
	// Explored lets a node's timers fire without time passing for other nodes, and leaves
	// out slow checks that other tests make.
	Explored bool
	// Patient clients wait between attempts.
	Patient bool

	// Chances per step: that a request gets a fault, that a write lands late, that a new
	// request is held back, that a node pauses or crashes, that a clock changes, that
	// time passes while requests are in flight.
	Fault, Late, Hold, Pause, Crash, Bend, Hurry float64
}

// NewPlan draws a plan from a seed.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	some := func(most float64) float64 { // 0, or a number up to most
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

// format returns the format.json of the plan's log.
func (p Plan) format() []byte {
	f := logtest.WithGrace(p.Grace)
	f.Probe = nil // no code here needs it, and every open would parse it
	b, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return b
}
