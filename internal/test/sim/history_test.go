package sim

import (
	"strings"
	"testing"
)

// told returns a history with the final contents a b c, in epochs 1 and 2.
func told(change func(h *history)) *history {
	h := &history{}
	h.final = []string{"a", "b", "c"}
	h.ops = []op{
		{kind: opOpen, epoch: 1, call: 1, ret: 2, outcome: yes},
		{kind: opAppend, epoch: 1, values: []string{"a", "b"}, call: 3, ret: 4, outcome: yes},
		{kind: opOpen, epoch: 2, offset: 2, cursor: "b", call: 5, ret: 6, outcome: yes},
		{kind: opAppend, epoch: 2, values: []string{"c"}, offset: 2, call: 7, ret: 8, outcome: yes},
		{kind: opAppend, epoch: 1, values: []string{"x"}, call: 3, ret: 9, outcome: no},
		{kind: opAppend, epoch: 2, values: []string{"y"}, call: 9, ret: -1},
		{kind: opRead, values: []string{"a", "b"}, call: 5, ret: 6, outcome: yes},
		{kind: opRead, values: []string{"a"}, call: 1, ret: 9, outcome: yes, tail: true},
	}
	if change != nil {
		change(h)
	}
	return h
}

func TestCheckFinds(t *testing.T) {
	if err := told(nil).check(); err != nil {
		t.Errorf("a correct history is reported: %v", err)
	}
	for want, change := range map[string]func(h *history){
		"lost":     func(h *history) { h.final = h.final[:2] },
		"twice":    func(h *history) { h.final = []string{"a", "b", "c", "a"} },
		"moved":    func(h *history) { h.ops[3].offset = 1 },
		"risen":    func(h *history) { h.final = append(h.final, "x") },
		"atom":     func(h *history) { h.ops[1].outcome, h.final = maybe, []string{"b", "a", "c"} },
		"disagree": func(h *history) { h.ops[7].values = []string{"x"} },
		"epoch":    func(h *history) { h.ops[1].epoch, h.ops[3].epoch = 2, 1 },
		"recovered": func(h *history) {
			h.ops[2].cursor = "a"
		},
		"zombie": func(h *history) {
			h.ops[1].call, h.ops[1].ret = 9, 10
		},
		// Only porcupine finds these.
		"order: stale read": func(h *history) { h.ops[6].call, h.ops[6].ret = 9, 9 },
		"order: read of what was not appended yet": func(h *history) {
			h.ops[6].values, h.ops[6].call, h.ops[6].ret = []string{"a", "b", "c"}, 5, 6
		},
		"order: tail of what was not appended yet": func(h *history) {
			h.ops[7].values, h.ops[7].ret = []string{"a", "b", "c"}, 6
		},
		"order: opened before the epoch before it had ended": func(h *history) {
			h.ops[2].call, h.ops[2].ret = 1, 2
		},
		"order: an epoch is opened twice": func(h *history) {
			h.ops = append(h.ops, op{kind: opOpen, epoch: 2, offset: 3, cursor: "c", call: 9, ret: 9, outcome: yes})
		},
	} {
		err := told(change).check()
		if kind, _, _ := strings.Cut(want, ":"); !strings.Contains(errText(err), kind+": ") {
			t.Errorf("%s is not found: %v", want, err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// An append of unknown outcome may have taken place at any later time, or never.
func TestUnknownIsAPossibility(t *testing.T) {
	for _, final := range []string{"a b c", "a b c y"} {
		h := told(func(h *history) { h.final = strings.Fields(final) })
		if err := h.check(); err != nil {
			t.Errorf("%s: %v", final, err)
		}
	}
	h := told(func(h *history) { h.final = []string{"a", "b", "y", "c"} })
	if err := h.check(); err == nil {
		t.Error("not reported: y was appended after c was acknowledged, but is before it in the log")
	}
}
