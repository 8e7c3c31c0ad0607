package sim

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/store"
)

// kind is the kind of an act.
type kind uint8

// The acts of the scheduler. These are about a request:
const (
	// apply lets the request take effect and answers it. A client that waits for its next
	// step continues.
	apply kind = iota + 1
	// land lets the request take effect. Its answer is still in flight.
	land
	// deliver answers a request that has landed.
	deliver
	// walk reads the first half of a listing that is not atomic.
	walk
	// reset breaks the connection. A write that has not taken effect may do so later.
	reset
	// lose lets the request take effect and breaks the connection.
	lose
	// refuse answers with HTTP status n and without effect. The status does not tell the
	// client whether there was one.
	refuse
	// failed is like refuse, but the request takes effect first.
	failed
	// echo lets the request take effect twice and delivers the second answer.
	echo
	// tear delivers half of the answer to a read, then breaks the connection.
	tear
	// late lets a write take effect that no client waits for, or one that has taken
	// effect before.
	late
	// These are about a node:
	//
	// tick lets time pass until the node's first timer is due, and fires it.
	tick
	// crash ends the process and starts it again. Its requests in flight may still land.
	crash
	// pause freezes the node. resume ends a pause.
	pause
	resume
	// jump advances the node's clock by n ns. rate makes it run at n thousandths of real
	// speed.
	jump
	rate
	// sleep lets n ns pass for all nodes.
	sleep
)

// fault reports whether an act is a fault, and not part of a normal run.
func (k kind) fault() bool {
	return k != apply && k != land && k != deliver && k != tick && k != resume
}

// act is one decision of the scheduler. It names the request or node, so that a replay
// can repeat it.
type act struct {
	kind kind
	on   string // name of the request or node
	n    int64

	req  *request // nil until resolve has found it
	node *node
}

func onRequest(k kind, r *request) act { return act{kind: k, on: r.id, req: r} }

func onNode(k kind, n *node, amount int64) act {
	return act{kind: k, on: n.name, n: amount, node: n}
}

// resolve finds the request or node of an act. It reports whether the act is possible
// now.
func (w *world) resolve(a *act) bool {
	if a.kind == sleep {
		return true
	}
	if a.kind < tick {
		if a.req == nil {
			for _, some := range [][]*request{w.pending, w.late, w.past} {
				if i := slices.IndexFunc(some, func(r *request) bool { return r.id == a.on }); i >= 0 && w.sensible(a.kind, some[i]) {
					a.req = some[i]
					break
				}
			}
		}
		return a.req != nil && w.sensible(a.kind, a.req)
	}
	if a.node == nil {
		a.node = w.alive(a.on)
	}
	if a.node == nil || !a.node.live() {
		return false
	}
	switch a.kind {
	case tick:
		_, ok := a.node.clock.next(w.now)
		return ok && !a.node.paused
	case pause:
		return !a.node.paused
	case resume:
		return a.node.paused
	case crash:
		return a.node.lives > 0
	}
	return true
}

func (w *world) sensible(k kind, r *request) bool {
	writes := !r.step() && !r.reads()
	fresh := !r.gone && r.landed == 0
	awake := !r.node.paused
	switch k {
	case apply:
		return fresh && awake
	case land:
		return fresh && !r.step()
	case deliver:
		return !r.gone && r.landed > 0 && awake && w.waits(r)
	case walk:
		return fresh && r.op == "list" && !r.walked && r.most == 0 && w.plan.Walks
	case reset:
		return !r.gone && awake && !r.step() && w.waits(r)
	case lose, failed:
		return fresh && awake && writes
	case echo:
		return fresh && awake && writes && r.op != "upload"
	case refuse:
		return fresh && awake && !r.step()
	case tear:
		return fresh && awake && r.reads() && !r.walked
	case late:
		return writes && (r.gone || r.landed > 0)
	}
	return false
}

func (w *world) waits(r *request) bool { return slices.Contains(w.pending, r) }

// perform carries out an act that resolve has accepted.
func (w *world) perform(a act) {
	w.steps++
	r := a.req
	outcome := ""
	switch a.kind {
	case apply:
		if r.step() {
			w.answer(r, reply{})
			break
		}
		w.effect(r)
		outcome = r.rep.String()
		w.answer(r, r.rep)
	case land:
		w.effect(r)
		outcome = r.rep.String()
	case deliver:
		outcome = r.rep.String()
		w.answer(r, r.rep)
	case walk:
		r.walk(w)
	case reset:
		if r.landed == 0 && !r.reads() {
			w.late = append(w.late, r)
		}
		w.answer(r, broke(r))
	case lose:
		w.effect(r)
		outcome = r.rep.String() + ", reply lost"
		w.answer(r, broke(r))
	case refuse:
		w.answer(r, status(r, int(a.n)))
	case failed:
		w.effect(r)
		outcome = r.rep.String() + ", but reported as failed"
		w.answer(r, status(r, int(a.n)))
	case echo:
		w.effect(r)
		outcome = r.rep.String() + ", then "
		w.effect(r)
		outcome += r.rep.String()
		w.answer(r, r.rep)
	case tear:
		w.effect(r)
		rep := r.rep
		if rep.err == nil {
			rep.body = rep.body[:len(rep.body)/2]
			rep.infos = rep.infos[:len(rep.infos)/2]
			rep.err = broke(r).err
		}
		w.answer(r, rep)
	case late:
		w.effect(r)
		outcome = r.rep.String()
		w.late = slices.DeleteFunc(w.late, func(o *request) bool { return o == r })
	case tick:
		at, _ := a.node.clock.next(w.now)
		if w.plan.Explored {
			a.node.clock.set(w.now, at-w.now, 1000)
		} else {
			w.pass(at)
		}
		a.node.learn(1, false)
		a.node.clock.fire()
	case crash:
		w.crash(a.node)
	case pause, resume:
		a.node.paused = a.kind == pause
	case jump:
		a.node.clock.set(w.now, time.Duration(a.n), a.node.clock.rate)
	case rate:
		a.node.clock.set(w.now, 0, a.n)
	case sleep:
		w.pass(w.now + time.Duration(a.n))
	}
	w.note(a, outcome)
}

// pass advances the time to at. It first completes the listings that are half done,
// because a listing takes less time than the grace period.
func (w *world) pass(at time.Duration) {
	if at > w.now {
		for _, r := range w.pending {
			if r.walked && r.landed == 0 {
				w.effect(r)
			}
		}
		w.now = at
	}
}

// effect lets a request take effect.
func (w *world) effect(r *request) {
	check := w.retaining(r)
	r.rep = w.bucket.do(r, w.now)
	check()
	if r.page > 0 && r.landed == 0 {
		w.count.Pages++
	}
	if r.op == "list" && !w.plan.Explored {
		infos := r.rep.infos // no code may rely on the order
		w.dice.order.Shuffle(len(infos), func(i, j int) { infos[i], infos[j] = infos[j], infos[i] })
	}
	w.election(r)
	if r.landed++; r.landed == 1 && !r.reads() && !r.step() {
		w.past = append(w.past, r)
	}
}

func (b *bucket) do(r *request, now time.Duration) reply {
	if b.bend != nil {
		if rep, ok := b.bend(b, r, now); ok {
			return rep
		}
	}
	switch r.op {
	case "get":
		return b.get(r, now)
	case "put", "upload":
		return b.put(r, now)
	case "delete":
		return b.delete(r.keys, r.node)
	}
	return reply{infos: r.list(b, now)}
}

// list completes a listing.
func (r *request) list(b *bucket, now time.Duration) []store.Info {
	infos := b.list(r.key, r.split, now)
	if r.most > 0 {
		infos = infos[:min(r.most, len(infos))]
	}
	if len(r.half) > 0 {
		infos = slices.DeleteFunc(infos, func(i store.Info) bool { return i.Key >= r.half[0].Key })
		infos = append(infos, r.half...)
	}
	return infos
}

// walk reads half of a listing: the higher names. So the listing misses an object that is
// created later among them, and an object among the lower names that is deleted before
// the second half.
func (r *request) walk(w *world) {
	infos := w.bucket.list(r.key, r.split, w.now)
	r.walked, r.walkedAt = true, w.steps
	r.half = infos[len(infos)-len(infos)/2:]
}

func (w *world) answer(r *request, rep reply) {
	w.pending = slices.DeleteFunc(w.pending, func(o *request) bool { return o == r })
	r.gone = true
	if w.plan.Explored {
		tag := rep.tag
		for _, i := range rep.infos {
			tag += mix(w.bucket.objects[i.Key].id, str(mask(i.Key)))
		}
		if rep.err != nil {
			tag = str(rep.String())
		}
		r.node.learn(mix(str(r.id), tag), r.op == "get" && strings.HasPrefix(r.key, "data/"))
	}
	r.answer(rep)
}

func broke(r *request) reply {
	return reply{err: &store.Error{Op: r.op, Key: r.key, Err: errReset}}
}

func status(r *request, code int) reply {
	if code == http.StatusForbidden {
		return fail(r.op, r.key, store.ErrDenied, code)
	}
	return reply{err: &store.Error{Op: r.op, Key: r.key, Status: code, Err: errors.New(strconv.Itoa(code))}}
}
