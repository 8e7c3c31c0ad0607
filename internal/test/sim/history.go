package sim

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
)

// opKind is the kind of a client's operation.
type opKind uint8

const (
	opOpen opKind = iota + 1
	opAppend
	opRead
	opEdit  // a change of the table
	opTable // a read of the table
)

// outcome is the outcome of an append or edit, as its client was told.
type outcome uint8

const (
	maybe outcome = iota // unknown, or the client crashed first
	yes
	no
)

func (o outcome) String() string {
	return [...]string{"unknown", "acknowledged at", "not committed"}[o]
}

// op is one operation of a client. call and ret are steps of the scheduler. ret is -1
// while the operation is in flight.
type op struct {
	kind      opKind
	node      string
	epoch     fence.Epoch
	values    []string // appended or read
	offset    uint64   // of the first value
	cursor    string
	outcome   outcome
	tail      bool // a read that need not reach the tail
	edit      *manifest.Edit
	table     *table
	unsent    bool // refused before it got a place in the writer's queue; later ones may succeed
	call, ret int
}

// history collects what clients were told and which promises were broken. It is safe for
// concurrent use.
type history struct {
	mu    sync.Mutex
	ops   []op
	wrong []error
	final []string // all records at the end
	// table is the table at the end, nil if it was not read. swept maps a file to the
	// step of its first deletion. contents maps a file to what was written to it.
	table    *table
	swept    map[string]int
	contents sync.Map
	// partial: clients were killed before they reported, so the log may have records that
	// no client reported.
	partial bool
}

func (h *history) begin(o op) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.ret = -1
	h.ops = append(h.ops, o)
	return len(h.ops) - 1
}

func (h *history) end(id int, o outcome, offset uint64, ret int) (values []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[id].outcome, h.ops[id].offset, h.ops[id].ret = o, offset, ret
	return h.ops[id].values
}

// overtaken reports whether a later epoch was opened.
func (h *history) overtaken(epoch fence.Epoch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.ops, func(o op) bool { return o.kind == opOpen && o.outcome == yes && o.epoch > epoch })
}

// refused notes that an operation did not get a place in the writer's queue.
func (h *history) refused(id int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[id].unsent = true
}

func (h *history) read(id int, values []string, from uint64, complete bool, ret int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &h.ops[id]
	o.values, o.offset, o.tail, o.ret, o.outcome = values, from, o.tail || !complete, ret, yes
}

// BrokenError describes a promise that was broken.
type BrokenError struct {
	// Kind is a word for the promise: lost, twice, moved, zombie, order, disagree, ...
	Kind string
	Text string
}

func (v *BrokenError) Error() string { return v.Kind + ": " + v.Text }

func (h *history) broken(kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, &BrokenError{kind, fmt.Sprintf(format, args...)})
}

// count counts the operations.
func (h *history) count(c *Counts) {
	for _, o := range h.ops {
		switch {
		case o.kind == opAppend && o.outcome == yes:
			c.Acked += len(o.values)
		case o.kind == opAppend && o.outcome == no:
			c.Never += len(o.values)
		case o.kind == opAppend:
			c.Maybe += len(o.values)
		case o.kind == opEdit && o.outcome == yes:
			c.Edits++
		case o.kind == opTable && o.ret >= 0:
			c.Looks++
		}
	}
}

// check compares what clients were told with the final contents.
func (h *history) check() error {
	h.checkContents()
	if len(h.wrong) == 0 && !linearizable(h.ops, h.final) {
		h.broken("order", "no order of the operations explains what the clients were told")
	}
	return errors.Join(h.wrong...)
}

func (h *history) checkContents() {
	at := make(map[string]int, len(h.final))
	for i, v := range h.final {
		if j, twice := at[v]; twice {
			h.broken("twice", "%q is in the log at offset %d and at %d", v, j, i)
		}
		at[v] = i
	}
	h.checkAppends(at)
	h.checkReads()
	h.checkEpochs()
	h.checkTables()
}

func (h *history) checkAppends(at map[string]int) {
	for _, o := range h.ops {
		if o.kind != opAppend {
			continue
		}
		for k, v := range o.values {
			i, there := at[v]
			switch {
			case o.outcome == yes && !there:
				h.broken("lost", "%q was acknowledged to %s at offset %d, but is not in the log", v, o.node, o.offset)
			case o.outcome == yes && uint64(i) != o.offset+uint64(k):
				h.broken("moved", "%q was acknowledged to %s at offset %d, but is at %d", v, o.node, o.offset+uint64(k), i)
			case o.outcome == no && there:
				h.broken("risen", "%s was told that %q will never be committed, but it is in the log at offset %d", o.node, v, i)
			case k > 0 && there && (i == 0 || h.final[i-1] != o.values[k-1]):
				h.broken("atom", "%q is in the log without %q before it, although both were in one append", v, o.values[k-1])
			case k > 0 && !there && at[o.values[k-1]] > 0:
				h.broken("atom", "%q is in the log without %q after it, although both were in one append", o.values[k-1], v)
			}
		}
	}
}

// checkReads checks that all readers saw parts of one history. So no reader got a void
// record.
func (h *history) checkReads() {
	for _, o := range h.ops {
		if o.kind != opRead {
			continue
		}
		for i, v := range o.values {
			if at := o.offset + uint64(i); at >= uint64(len(h.final)) || h.final[at] != v {
				h.broken("disagree", "%s read %q at offset %d, but the history has another record there", o.node, v, at)
				break
			}
		}
		if end := o.offset + uint64(len(o.values)); o.table != nil && o.outcome == yes && end != o.table.end {
			h.broken("short", "%s read records up to offset %d of a snapshot that ends at %d", o.node, end, o.table.end)
		}
	}
}

// checkEpochs checks three rules. Epochs rise along the log. A writer begins after the
// last record, with that record's cursor. A zombie gets no acknowledgement for an append
// that it made after its successor's first acknowledgement.
func (h *history) checkEpochs() {
	first := map[fence.Epoch]int{} // epoch → step of its first acknowledgement
	owner := map[string]fence.Epoch{}
	for _, o := range h.ops {
		if o.kind != opAppend && o.kind != opEdit {
			continue
		}
		for _, v := range o.values {
			owner[v] = o.epoch
		}
		if o.outcome == yes {
			if at, ok := first[o.epoch]; !ok || o.ret < at {
				first[o.epoch] = o.ret
			}
		}
	}
	last := fence.Epoch(0)
	for i, v := range h.final {
		epoch, known := owner[v]
		switch {
		case !known && !h.partial:
			h.broken("nobody's", "%q is in the log at offset %d, but no client appended it", v, i)
		case known && epoch < last:
			h.broken("epoch", "%q of epoch %d is in the log at offset %d, after epoch %d", v, epoch, i, last)
		case known:
			last = epoch
		}
	}
	for _, o := range h.ops {
		switch o.kind {
		case opAppend, opEdit:
			for e, at := range first {
				if o.outcome == yes && e > o.epoch && o.call > at {
					h.broken("zombie", "%v of epoch %d, appended in step %d, was acknowledged, although epoch %d had its first acknowledgement in step %d", o.values, o.epoch, o.call, e, at)
				}
			}
		case opOpen:
			want := ""
			if o.offset > 0 && o.offset <= uint64(len(h.final)) {
				want = h.final[o.offset-1]
			}
			if o.offset > uint64(len(h.final)) || o.cursor != want {
				h.broken("recovered", "%s opened epoch %d at offset %d with cursor %q, but the cursor there is %q", o.node, o.epoch, o.offset, o.cursor, want)
			}
		}
	}
}
