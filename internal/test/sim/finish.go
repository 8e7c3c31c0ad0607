package sim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// settled reports whether all writers have done their work.
func (w *world) settled() bool {
	return !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.live() && n.role[0] == 'w' })
}

// direct returns a node whose requests take effect at once.
func (w *world) direct(name string) *node {
	n := &node{world: w, role: name, name: name, direct: true}
	n.clock = &nodeClock{node: n, rate: 1000}
	return n
}

// finish checks the log after all nodes have ended. It reads the log, lets half of the
// late requests land, and opens a last writer. Then it lets all late requests land, some
// of them twice, and reads the log again.
func (w *world) finish() {
	ctx := context.Background()
	n := w.direct("end")
	before := w.readAll(n)
	middle := before
	if some := len(w.late) / 2; some > 0 {
		w.stragglers(some)
		middle = w.readAll(n)
	}
	if len(middle) < len(before) || !slices.Equal(before, middle[:len(before)]) {
		w.history.broken("changed", "late requests changed the history from %q to %q", before, middle)
	}
	wr, err := writer.Open(ctx, n.store(), fence.NewToken(w.highest()+1), n.simple())
	if err != nil {
		w.history.broken("end", "the last writer cannot open the log: %v", err)
		w.history.final = middle
		return
	}
	if at := wr.Recovered().Offset; at != uint64(len(middle)) {
		w.history.broken("end", "the last writer begins at offset %d, but the log has %d records", at, len(middle))
	}
	_, err = wr.Append(ctx, [][]byte{[]byte("end")})
	if err := errors.Join(err, wr.Close(ctx)); err != nil {
		w.history.broken("end", "the last writer: %v", err)
	}
	if w.plan.Edits {
		w.history.table = w.readTable(ctx, n)
	}
	w.stragglers(len(w.late))
	for _, r := range slices.Clone(w.past) {
		if w.dice.order.IntN(2) == 0 {
			w.effect(r)
		}
	}
	final := w.readAll(n)
	w.history.final = middle
	if !slices.Equal(final, append(slices.Clone(middle), "end")) {
		w.history.broken("changed", "late requests changed the history from %q plus \"end\" to %q", middle, final)
	}
	if w.plan.Explored {
		return
	}
	w.sameTable(ctx, n)
	w.unpin(ctx, n)
	report, err := verify.Run(ctx, n.store(), &verify.Options{Settle: n.settle(), Clock: n.clock})
	if err != nil {
		w.history.broken("verify", "%v", err)
	} else if !report.OK() {
		w.history.broken("verify", "%v", report.Problems)
	}
	if w.plan.Edits || w.plan.Retain || w.plan.Snapshots > 0 || w.plan.Backups > 0 {
		w.tidy(ctx, n)
		w.sameTable(ctx, n)
		if left := w.readAll(n); !slices.Equal(final, left) {
			w.history.broken("changed", "pruning changed the history from %q to %q", final, left)
		}
	}
}

// unpin deletes named pins that nobody holds, as an operator does after verify has reported
// them. They cannot be told from valid ones. Some are expired pins that have come back: a
// late copy of the create has landed, and where equal bytes have equal versions, a late copy
// of a renewal too. Of others the maker was told that it does not hold them, and that the
// store refused to delete them.
func (w *world) unpin(ctx context.Context, n *node) {
	var idle []string
	for key, h := range w.holds.byKey {
		var doc struct {
			Renewals int `json:"renewals"`
		}
		if o := w.bucket.objects[key]; o != nil && !h.valid() && json.Unmarshal(o.body, &doc) == nil && doc.Renewals > 0 {
			idle = append(idle, key)
		}
	}
	if slices.Sort(idle); len(idle) > 0 {
		if err := n.store().Delete(ctx, idle...); err != nil {
			w.history.broken("client", "unpinning: %v", err)
		}
	}
}

// stragglers lets n of the late requests land.
func (w *world) stragglers(n int) {
	for range min(n, len(w.late)) {
		i := w.dice.order.IntN(len(w.late))
		r := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		w.effect(r)
		w.tellf(r.node.name, "late: %s: %s", r.id, r.rep)
	}
}

// highest returns the greatest epoch that any writer may have.
func (w *world) highest() fence.Epoch {
	top := w.token
	for k := range w.bucket.objects {
		for _, prefix := range []string{layout.LockPrefix, layout.DataPrefix} {
			rest, found := strings.CutPrefix(k, prefix)
			if e, ok := layout.ParseNumber(rest[:min(20, len(rest))]); ok && found {
				top = max(top, fence.Epoch(e))
			}
		}
	}
	return top
}

// readAll returns all records of the log: those that were truncated, from memory, and the
// rest from the store.
func (w *world) readAll(n *node) []string {
	all := slices.Clone(w.given.values[:min(w.begins(), uint64(len(w.given.values)))])
	w.records(n, uint64(len(all)), func(rec reader.Record) { all = append(all, string(rec.Value)) })
	return all
}

// records calls f with each record of the log from an offset on.
func (w *world) records(n *node, from uint64, f func(reader.Record)) {
	ctx := context.Background()
	r, err := reader.Open(ctx, n.store(), &reader.Options{Settle: n.settle(), Clock: n.clock})
	if err != nil {
		w.history.broken("read", "%v", err)
		return
	}
	for rec, err := range r.Read(ctx, from) {
		if err != nil {
			w.history.broken("read", "%v", err)
			return
		}
		if rec.Offset != from {
			w.history.broken("offset", "offset %d in place of %d", rec.Offset, from)
			return
		}
		from++
		f(rec)
	}
}
