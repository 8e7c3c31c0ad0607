package sim

import (
	"hash/maphash"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/fencepost/fencepost/fence"
)

// logState is the log as a sequential object. prev is the state one record shorter, so
// that a prefix can be compared.
type logState struct {
	epoch fence.Epoch
	size  uint64
	sum   uint64 // hash of all records
	prev  *logState
}

var mixer = maphash.MakeSeed()

func (s *logState) with(values []string) *logState {
	for _, v := range values {
		s = &logState{epoch: s.epoch, size: s.size + 1, sum: s.sum*0x9e3779b97f4a7c15 + maphash.String(mixer, v), prev: s}
	}
	return s
}

// model is the promise of the log. Opening an epoch fences all lower epochs and finds the
// end offset. An append or edit of the open epoch goes to the end offset. A read returns
// all records. A read of the tail returns a prefix.
var model = porcupine.Model{
	Init: func() any { return &logState{} },
	Equal: func(a, b any) bool {
		x, y := a.(*logState), b.(*logState)
		return x == y || x.epoch == y.epoch && x.size == y.size && x.sum == y.sum
	},
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(*logState), input.(*op)
		switch o.kind {
		case opOpen:
			return s.epoch < o.epoch && s.size == o.offset, &logState{epoch: o.epoch, size: s.size, sum: s.sum, prev: s.prev}
		case opEdit:
			return s.epoch == o.epoch && s.size == o.offset, s
		case opAppend:
			return s.epoch == o.epoch && s.size == o.offset, s.with(o.values)
		}
		size := uint64(len(o.values))
		if size > s.size || !o.tail && size != s.size {
			return false, s
		}
		at := s
		for at.size > size {
			at = at.prev
		}
		return at.sum == (&logState{}).with(o.values).sum, s
	},
}

// linearizable reports whether some order of the operations explains all answers. Each
// operation must take place between its call and its return.
//
// An append of unknown outcome may take place at any time after its call, or never. The
// final contents tell which. If its records are there, the append took place at that
// offset, and porcupine finds the time. If they are not there, it did not take place, and
// no other answer depends on it. An open of unknown outcome is left out, because it could
// only forbid more orders.
func linearizable(ops []op, final []string) bool {
	place := make(map[string]int, len(final))
	for i, v := range final {
		place[v] = i
	}
	end := int64(math.MaxInt64)
	events := make([]porcupine.Operation, 0, len(ops)+1)
	for i := range ops {
		o := &ops[i]
		ret := int64(o.ret)
		switch {
		case o.kind == opAppend && o.outcome != yes:
			at, there := place[o.values[0]]
			if !there {
				continue
			}
			known := *o
			known.outcome, known.offset = yes, uint64(at)
			o, ret = &known, end-1
		case o.kind == opTable, o.kind == opEdit && o.outcome != yes:
			continue // see checkTables
		case o.ret < 0, o.kind == opRead && len(o.values) == 0 && o.tail:
			continue
		case o.kind == opRead && o.offset > 0:
			if o.offset > uint64(len(final)) {
				return false
			}
			// The read began at a later offset. Put the records before it in front.
			known := *o
			known.values = slices.Concat(final[:o.offset], o.values)
			o = &known
		}
		events = append(events, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.call), Return: ret})
	}
	events = append(events, porcupine.Operation{ClientId: len(ops), Input: &op{kind: opRead, values: final}, Call: end, Return: end})
	return porcupine.CheckOperations(model, events)
}
