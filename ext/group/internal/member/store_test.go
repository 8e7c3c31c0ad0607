package member_test

import (
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
)

// send carries a job out, as the driver does: a write is settled until its outcome is known or the
// job's time is up.
func (p *proc) send(j member.Job) {
	w := p.w
	w.counts[p.name+" "+j.Op.String()]++
	life := p.life
	answer := func(ev member.Event) {
		ev.Kind, ev.N = member.Answer, j.N
		w.after(w.delay(), func() { p.step(life, ev) })
	}
	if w.hold(p, j, answer) {
		return
	}
	if p.freezes > 0 && j.Op == member.Create && strings.HasPrefix(j.Key, member.AssignPrefix) {
		// Its machine stops between the step and the request, and its clock with it.
		d := p.freezes
		p.freezes = 0
		w.tell("%s is frozen for %v before it creates %s", p.name, d, j.Key)
		w.after(d, func() { p.lost += d })
		p.pause(d)
		w.after(d, func() { p.send(j) })
		return
	}
	left := time.Duration(float64(j.Until-p.local()) / p.rate)
	sent := w.delay()
	lost := w.rng.Float64() < w.faults
	if write := j.Op == member.Create || j.Op == member.Swap || j.Op == member.Put || j.Op == member.Delete; write && w.rng.Float64() < w.late {
		for range 1 + w.rng.IntN(2) {
			late := w.rng.ExpFloat64() * float64(w.validity) * 2
			if w.rng.IntN(4) == 0 {
				late *= 20 // into a pruned hole
			}
			w.after(time.Duration(late), func() { w.apply(j) })
		}
	}
	switch {
	case !lost:
		w.after(sent, func() {
			if p.crashed && w.rng.IntN(2) == 0 {
				return
			}
			if j.Op == member.List {
				w.list(j.Key, "", nil, answer)
				return
			}
			answer(w.apply(j))
		})
	case w.rng.IntN(2) == 0 && j.Op != member.List:
		// The reply is lost. A write is settled later, by reading it back.
		w.after(sent, func() {
			ev := w.apply(j)
			if again := time.Duration(w.rng.Int64N(int64(2 * time.Second))); again < left {
				w.after(again, func() { answer(w.settle(j, ev)) })
				return
			}
			w.after(left-sent, func() { answer(member.Event{Outcome: member.Failed}) })
		})
	default:
		// It is lost on its way.
		w.after(min(time.Duration(w.rng.Int64N(int64(3*time.Second))), max(left, 0)), func() { answer(member.Event{Outcome: member.Failed}) })
	}
}

// settle is what a driver finds when it repeats a write whose reply was lost.
func (w *world) settle(j member.Job, first member.Event) member.Event {
	if j.Op != member.Create && j.Op != member.Swap {
		return first
	}
	o := w.store[j.Key]
	switch {
	case o != nil && o.doc == j.Doc:
		return member.Event{Outcome: member.Done, Version: o.version}
	case o == nil && j.Op == member.Create, o != nil && o.version == j.Known && j.Op == member.Swap:
		return w.apply(j)
	}
	return member.Event{Outcome: member.Refused}
}

func (w *world) apply(j member.Job) member.Event {
	o := w.store[j.Key]
	switch j.Op {
	case member.Get:
		switch {
		case o == nil:
			return member.Event{Outcome: member.Absent}
		case o.version == j.Known:
			return member.Event{Outcome: member.Same}
		}
		if err, unreadable := o.doc.(error); unreadable {
			return member.Event{Outcome: member.Unreadable, Err: err}
		}
		return member.Event{Outcome: member.Done, Version: o.version, Doc: o.doc}
	case member.Create:
		if o != nil {
			return member.Event{Outcome: member.Refused}
		}
	case member.Swap:
		if o == nil || o.version != j.Known {
			return member.Event{Outcome: member.Refused}
		}
	case member.Delete:
		for _, key := range j.Keys {
			w.remove(key)
		}
		return member.Event{Outcome: member.Done}
	case member.Put, member.List:
	}
	if a, ok := j.Doc.(*assign.Assignment); ok {
		w.made(a)
	}
	return member.Event{Outcome: member.Done, Version: w.write(j.Key, j.Doc).version}
}

// list shows the keys in order, a page at a time. Between two pages others write.
func (w *world) list(prefix, after string, found []member.Entry, answer func(member.Event)) {
	first, _ := slices.BinarySearch(w.keys, max(prefix, after))
	keys := w.keys[first:]
	for len(keys) > 0 && keys[0] <= after {
		keys = keys[1:]
	}
	page := 1000
	if w.faults > 0 {
		page = 1 + w.rng.IntN(8)
	}
	for i, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		if i == page {
			last := keys[i-1]
			w.after(w.delay(), func() { w.list(prefix, last, found, answer) })
			return
		}
		o := w.store[key]
		found = append(found, member.Entry{Key: key, Version: o.version, Age: w.now - o.modified})
	}
	answer(member.Event{Outcome: member.Done, Entries: found})
}

// newest is the number of the highest assignment in the store.
func (w *world) newest() (n uint64) {
	for key := range w.store {
		if x, ok := member.ParseAssignKey(key); ok {
			n = max(n, x)
		}
	}
	return n
}
