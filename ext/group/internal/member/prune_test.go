package member_test

import (
	"testing"

	"github.com/fencepost/fencepost/ext/group/internal/member"
)

// A pruner deletes no acknowledgement of a higher number than the assignment by which it judges.
func TestPrunerKeepsWhatItCannotJudge(t *testing.T) {
	w := newWorld(t, 1, 1)
	p := w.proc("a")
	w.balanced(w.validity)
	if n := p.m.Known().Number(); n != 1 {
		t.Fatalf("the newest assignment is %d", n)
	}
	if !p.m.Needless(member.AckKey(id(7), 1, 1)) {
		t.Error("an acknowledgement of 1, which names nobody as pending, is kept for ever")
	}
	if p.m.Needless(member.AckKey(id(7), 2, 1)) {
		t.Error("a pruner that has read 1 deletes an acknowledgement of 2")
	}
}
