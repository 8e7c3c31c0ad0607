package member_test

import (
	"testing"

	"github.com/fencepost/fencepost/ext/group/internal/member"
)

// A pruner deletes no acknowledgement of a higher number than the assignment by which it judges.
//
// guard:ack-newer. A pruner relies on no time for this, although the grace period is longer than a
// member lives that cannot read. Without this check, and with a shorter grace period: a pruner has read
// only assignment 1, which has no pending entries, and its GETs of assignment 2 fail; A acknowledges
// assignment 2; the pruner deletes this acknowledgement; the owner by assignment 2 waits for ever.
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
