package screen_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/screen"
	"github.com/fencepost/fencepost/fence"
)

var now = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func states() []outside.State {
	return []outside.State{{URL: "s3://bucket/orders", Now: now, Asked: now.Add(-2 * time.Second), Requests: 1234, Log: &outside.Log{
		Complete: true, Read: outside.Parts{Leader: true, Manifest: true, Tail: true, Compactor: true, Pins: true}, Terms: []outside.Term{
			{Epoch: 3, Known: true, Holder: "bob", State: "held", From: now.Add(-10 * time.Minute), To: now, Renewals: 100},
			{Epoch: 2, Known: true, Holder: "evil\x1b[2Jname", State: "expired", From: now.Add(-50 * time.Minute), To: now.Add(-12 * time.Minute), Reason: "lapsed"},
			{Epoch: 1},
		},
		Tail: fence.Position{Epoch: 3, Seq: 40}, Floor: fence.Position{Epoch: 3, Seq: 30}, Records: 5000, Folded: 4900, Unfolded: 10, Segments: 2,
		Pins: []outside.Pin{{Name: "backup", Version: 4, Holder: "x"}}, Edits: 40, Published: &outside.Published{Version: 12, Edits: 37, At: now.Add(-time.Minute)},
	}}, {URL: "s3://bucket/work", Now: now, Err: "the store is away", Group: &outside.Group{
		Partitions: 4, Owners: []int{0, 0, 1, -1}, Members: []outside.Member{{Name: "a", Identity: "ann", Owned: 2}, {Name: "b", Identity: "bob", Owned: 1, Lapsed: true}},
		Moves: []outside.Move{{At: now, Partitions: 1, From: "a", To: "b"}},
	}}, {URL: "s3://bucket/nightly", Now: now, Lock: &outside.Lock{Complete: true, Terms: []outside.Term{
		{Epoch: 2, Known: true, Holder: "cat", State: "held", From: now.Add(-time.Minute), To: now.Add(-5 * time.Second), Validity: 15},
		{Epoch: 1, Known: true, Holder: "dan", State: "expired", From: now.Add(-time.Hour), To: now.Add(-30 * time.Minute), Reason: "resigned"},
	}}}}
}

func TestRender(t *testing.T) {
	out := screen.Render(states(), 100, 0, false)
	for _, want := range []string{
		"leader     bob, epoch 3, for 10m, 100 heartbeats", "5,000, of these 4,900 folded into 2 segments", "10 objects are not folded, 100 records",
		"1: backup (version 4)", "published  Delta version 12, 37 edits, the last 60s ago; 3 folded edits behind", "lapsed", "not read yet", "█", "the store is away", "1 without an owner", "1 from ann to bob", "store answered 2s ago · 1,234 requests",
		"leader     cat, epoch 2, for 60s", "unless it is renewed, in 10s", "log        none", "30m  resigned",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a name of the store, or the sheet without colour, has an escape sequence")
	}
}

// Nothing is wider or higher than the terminal.
func TestFits(t *testing.T) {
	for _, width := range []int{40, 60, 80, 200} {
		for _, line := range strings.Split(screen.Render(states(), width, 0, false), "\n") {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d columns at a width of %d: %s", n, width, line)
			}
		}
	}
	if n := strings.Count(screen.Render(states(), 80, 12, true), "\n"); n != 11 {
		t.Errorf("%d lines on a terminal of 12", n+1)
	}
}
