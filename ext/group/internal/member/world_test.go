package member_test

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// world is a store and the processes of a group, in virtual time. One event happens after the
// other, so a seed gives the same history each time. The store keeps documents as they are; their
// bytes are tested elsewhere.
type world struct {
	*testing.T
	rng    *rand.Rand
	now    time.Duration
	queue  queue
	n      uint64 // numbers events, names and versions
	store  map[string]*object
	keys   []string // of the store, in order
	procs  []*proc
	counts map[string]int // requests by kind

	latency    time.Duration
	faults     float64 // of each request
	late       float64 // that a copy of a write lands later
	contents   bool    // versions depend on contents alone
	versions   map[any]store.Version
	validity   time.Duration
	partitions int
	stallAfter time.Duration
	stuck      []int // the work on these makes no progress and does not return

	top   map[int]fence.Token // the greatest token of each partition
	runs  map[int][]*work     // by partition
	freed map[int]time.Duration
	gaps  []time.Duration
	moves int
	notes map[string]int                // by what they say
	kept  map[uint64]*assign.Assignment // the first of each number
	story []string

	// Of scripts only.
	script bool
	holds  []rule
	held   []*heldJob
}

type object struct {
	version  store.Version
	doc      any
	modified time.Duration
}

// proc is a process. It joins again under another name when its session is over.
type proc struct {
	w       *world
	name    string
	id      fence.ID
	m       *member.Machine
	life    int
	rate    float64
	lost    time.Duration // for which its clock stood still
	freezes time.Duration // how long it is frozen before it next creates an assignment
	standby bool          // its weight is 0
	crashed bool
	running bool // Run was called
	stopped bool // it does not join again
	paused  time.Duration
	manual  bool          // its work returns only when the script says so
	woken   time.Duration // the earliest tick that is under way
	works   map[int]*work
	hangs   bool                     // its work does not return
	fails   func(partition int) bool // whether the work fails, after failsIn
	failsIn time.Duration
	drain   time.Duration
	ends    []member.Cause
	joinAt  time.Duration
}

type work struct {
	p         *proc
	life      int
	partition int
	over      bool
	began     clock.Instant
}

type timed struct {
	at time.Duration
	n  uint64
	do func()
}

type queue []timed

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].at, q[j].at), cmp.Compare(q[i].n, q[j].n)) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(timed)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

var group = id(999)

func id(n uint64) (x fence.ID) {
	binary.BigEndian.PutUint64(x[8:], n)
	return x
}

func newWorld(t *testing.T, seed uint64, partitions int) *world {
	w := &world{
		T: t, rng: rand.New(rand.NewPCG(seed, 0)), store: map[string]*object{}, versions: map[any]store.Version{}, counts: map[string]int{},
		latency: 20 * time.Millisecond, validity: 15 * time.Second, partitions: partitions,
		top: map[int]fence.Token{}, runs: map[int][]*work{}, freed: map[int]time.Duration{}, notes: map[string]int{}, kept: map[uint64]*assign.Assignment{},
	}
	w.write(member.FormatKey, &member.Format{Partitions: partitions})
	return w
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%12v  %s", w.now.Round(time.Millisecond), fmt.Sprintf(format, args...)))
	if len(w.story) > 4000 {
		w.story = w.story[2000:]
	}
}

// fail reports an error with the end of the story.
func (w *world) fail(format string, args ...any) {
	w.Helper()
	w.tell(format, args...)
	w.Fatalf("%s", strings.Join(w.story[max(0, len(w.story)-400):], "\n"))
}

func (w *world) after(d time.Duration, do func()) {
	w.n++
	heap.Push(&w.queue, timed{w.now + max(d, 0), w.n, do})
}

// run lets so much time pass.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(timed)
		w.now = e.at
		e.do()
	}
	w.now = end
}

func (w *world) write(key string, doc any) *object {
	w.n++
	v := store.Version(fmt.Sprint("v", w.n))
	if w.contents {
		if old, ok := w.versions[doc]; ok {
			v = old
		}
		w.versions[doc] = v
	}
	o := &object{version: v, doc: doc, modified: w.now}
	w.store[key] = o
	if i, there := slices.BinarySearch(w.keys, key); !there {
		w.keys = slices.Insert(w.keys, i, key)
	}
	return o
}

func (w *world) remove(key string) {
	delete(w.store, key)
	if i, there := slices.BinarySearch(w.keys, key); there {
		w.keys = slices.Delete(w.keys, i, i+1)
	}
}

func (w *world) delay() time.Duration {
	if w.script {
		return 10 * time.Millisecond
	}
	return w.latency/2 + time.Duration(w.rng.Int64N(int64(w.latency)))
}

// standby starts a process that only organises.
func (w *world) standby(name string) *proc {
	p := &proc{w: w, name: name, rate: 1, standby: true}
	w.procs = append(w.procs, p)
	p.join()
	return p
}

func (w *world) proc(name string) *proc {
	p := &proc{w: w, name: name, rate: 1 + (w.rng.Float64()-0.5)/600, drain: 100 * time.Millisecond}
	w.procs = append(w.procs, p)
	p.join()
	return p
}

// origin is subtracted from the clocks of processes: an instant may be negative.
const origin = clock.Instant(365 * 24 * time.Hour)

func (p *proc) local() clock.Instant { return clock.Instant(float64(p.w.now-p.lost)*p.rate) - origin }

func (p *proc) config() member.Config {
	w, weight := p.w, uint64(1)
	if p.standby {
		weight = 0
	}
	return member.Config{
		Self: p.id, Group: group, Partitions: w.partitions, Identity: p.name, Weight: weight, Validity: w.validity,
		Renew: w.validity * 2 / 5, Margin: w.validity / 10, ClockRate: 0.001, Drain: w.validity * 2 / 5,
		StallAfter: w.stallAfter, Progress: p.progress, Random: w.random,
		Nonce: func() string { w.n++; return fmt.Sprint(w.n) },
	}
}

func (p *proc) progress(partition int) clock.Instant {
	if x := p.works[partition]; x != nil && slices.Contains(p.w.stuck, partition) {
		return x.began
	}
	return p.local()
}

func (w *world) random() float64 {
	if w.script {
		return 0.5
	}
	return w.rng.Float64()
}

func (p *proc) join() {
	p.w.n++
	p.life++
	p.id = id(p.w.rng.Uint64N(1<<20)<<40 | p.w.n)
	p.m = member.New(p.config())
	p.works = map[int]*work{}
	p.woken, p.running = 1<<60, false
	p.joinAt = p.w.now
	p.w.tell("%s joins as %v", p.name, p.id)
	p.step(p.life, member.Event{Kind: member.Join})
}

// step gives the machine an event, or puts it off while the process is paused.
func (p *proc) step(life int, ev member.Event) {
	w := p.w
	if p.crashed || life != p.life {
		return
	}
	if w.now < p.paused {
		w.after(p.paused-w.now, func() { p.step(life, ev) })
		return
	}
	r := p.m.Step(p.local(), ev)
	if r.Ended != "" {
		p.ended(r)
		return
	}
	for _, s := range r.Starts {
		p.start(s)
	}
	for _, s := range r.Stops {
		p.stop(s)
	}
	if r.Adopted != nil {
		w.tell("%s adopts %d", p.name, r.Adopted.Number())
	}
	for _, n := range r.Notes {
		w.notes[n.What]++
		if n.What != member.NoteBeat {
			w.tell("%s: %s %v %d", p.name, n.What, n.Member, n.Number)
		}
	}
	for _, j := range r.Jobs {
		p.send(j)
	}
	if p.m.Joined() && !p.running {
		p.running = true
		p.step(life, member.Event{Kind: member.Run})
		return
	}
	p.tick(r.Wake)
}

func (p *proc) tick(at clock.Instant) {
	w := p.w
	wake := max(w.now+time.Microsecond, p.lost+time.Duration(float64(at+origin)/p.rate)+time.Microsecond)
	if wake >= p.woken && p.woken > w.now {
		return
	}
	p.woken = wake
	life := p.life
	w.after(wake-w.now, func() {
		if p.life == life && p.woken == wake {
			p.woken = 1 << 60
		}
		p.step(life, member.Event{Kind: member.Tick})
	})
}

func (p *proc) ended(r member.Ready) {
	w := p.w
	w.tell("%s ended: %s", p.name, r.Ended)
	p.ends = append(p.ends, r.Ended)
	for _, x := range p.works {
		p.finish(x)
	}
	if p.stopped {
		p.crashed = true
		return
	}
	if !w.script && (r.Ended == member.ByDamage || r.Ended == member.ByDenial) {
		w.fail("%s ended by %s: %v", p.name, r.Ended, r.Err)
	}
	life := p.life
	w.after(time.Duration(w.rng.Int64N(int64(2*time.Second))), func() {
		if !p.crashed && p.life == life && !w.script {
			p.join()
		}
	})
}

func (p *proc) finish(x *work) {
	if !x.over {
		x.over = true
		p.w.freed[x.partition] = p.w.now
	}
	if p.works[x.partition] == x {
		delete(p.works, x.partition)
	}
}

func (p *proc) start(s member.Start) {
	w := p.w
	w.tell("%s starts %d with %d", p.name, s.Partition, s.Token.Epoch())
	// One at a time, by their own belief.
	alive := w.runs[s.Partition][:0]
	for _, x := range w.runs[s.Partition] {
		if x.over {
			continue
		}
		alive = append(alive, x)
		if x.p.life == x.life && !x.p.crashed && x.p.local() < x.p.m.Deadline() {
			if w.script {
				w.tell("!! %s works on partition %d, too", x.p.name, s.Partition)
				continue
			}
			w.fail("%s starts partition %d while %s works on it", p.name, s.Partition, x.p.name)
		}
	}
	// Tokens rise.
	if s.Token.Epoch() <= w.top[s.Partition].Epoch() {
		if w.script {
			w.tell("!! the greatest token was %d", w.top[s.Partition].Epoch())
		} else {
			w.fail("%s starts partition %d with token %d after %d", p.name, s.Partition, s.Token.Epoch(), w.top[s.Partition].Epoch())
		}
	}
	w.top[s.Partition] = s.Token
	w.moves++
	if at, ok := w.freed[s.Partition]; ok {
		w.gaps = append(w.gaps, w.now-at)
		delete(w.freed, s.Partition)
	}
	x := &work{p: p, life: p.life, partition: s.Partition, began: p.local()}
	w.runs[s.Partition] = append(alive, x)
	p.works[s.Partition] = x
	if p.fails != nil && p.fails(s.Partition) {
		w.after(p.failsIn+w.delay(), func() { p.back(x, true) })
	}
}

func (p *proc) back(x *work, failed bool) {
	if x.over || x.life != p.life || p.crashed {
		return
	}
	if p.w.now < p.paused {
		p.w.after(p.paused-p.w.now, func() { p.back(x, failed) })
		return
	}
	p.w.tell("%s: the work on %d returns", p.name, x.partition)
	p.finish(x)
	p.step(p.life, member.Event{Kind: member.Returned, Partition: x.partition, Failed: failed})
}

func (p *proc) stop(s member.Stop) {
	p.w.tell("%s stops %d: %s", p.name, s.Partition, s.Cause)
	x := p.works[s.Partition]
	if p.hangs || p.manual || x == nil || slices.Contains(p.w.stuck, x.partition) {
		return
	}
	p.w.after(time.Duration(p.w.rng.Int64N(int64(p.drain)+1)), func() { p.back(x, false) })
}

// crash ends the process without a trace.
func (p *proc) crash() {
	p.w.tell("%s crashes", p.name)
	p.crashed = true
	for _, x := range p.works {
		p.finish(x)
	}
}

func (p *proc) pause(d time.Duration) {
	p.w.tell("%s is paused for %v", p.name, d)
	p.paused = max(p.paused, p.w.now+d)
}

func (p *proc) leave(forGood bool) {
	p.w.tell("%s leaves", p.name)
	p.stopped = forGood
	p.step(p.life, member.Event{Kind: member.Leave})
}
