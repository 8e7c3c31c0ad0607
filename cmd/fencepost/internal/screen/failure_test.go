package screen_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/screen"
)

// TestOldIsNotNow: after a failure the screen shows what was known, and does not count on.
func TestOldIsNotNow(t *testing.T) {
	out := screen.Render([]outside.State{{URL: "x", Now: now, Asked: now, Read: now.Add(-time.Hour), Err: "away", Log: &outside.Log{
		Complete: true, Terms: []outside.Term{{Epoch: 1, Known: true, Holder: "ann", State: "held", From: now.Add(-62 * time.Minute), To: now.Add(-time.Hour)}},
	}}}, 100, 0, false)
	if !strings.Contains(out, "as it was at the last look") || !strings.Contains(out, "ann, epoch 1, for 2m") && !strings.Contains(out, "for 1m59s") && !strings.Contains(out, "for 120s") {
		t.Error(out)
	}
}

// TestEndNotSeen: a past leader that led when it was last looked at has not "held" as its end.
func TestEndNotSeen(t *testing.T) {
	out := screen.Render([]outside.State{{URL: "x", Now: now, Log: &outside.Log{Complete: true, Terms: []outside.Term{
		{Epoch: 2, Known: true, Holder: "bob", State: "held", From: now}, {Epoch: 1, Known: true, Holder: "ann", State: "held", From: now, To: now},
	}}}}, 100, 0, false)
	if strings.Contains(out, "held") || strings.Count(out, "its end was not seen") != 1 {
		t.Error(out)
	}
}

// TestNotRead: what is not read yet is not drawn as zero.
func TestNotRead(t *testing.T) {
	out := screen.Render([]outside.State{{URL: "x", Now: now, Log: &outside.Log{}}, {URL: "y", Now: now}}, 100, 0, false)
	if strings.Contains(out, "nobody") || strings.Contains(out, "pins") || strings.Count(out, "not read yet: ") != 2 || !strings.Contains(out, "leader     not read yet") {
		t.Error(out)
	}
}

// TestPartsThatWereRead: what was read is drawn although another part cannot be read, and nothing else.
func TestPartsThatWereRead(t *testing.T) {
	out := screen.Render([]outside.State{{URL: "x", Now: now, Asked: now, Read: now, Err: "data cannot be read", Log: &outside.Log{
		Read: outside.Parts{Leader: true, Manifest: true}, Records: 7, Manifests: []outside.Manifest{{Version: 4}}, PublishedErr: "denied", Terms: []outside.Term{{Epoch: 2}},
	}}}, 100, 0, false)
	for want, there := range map[string]bool{"data cannot be read": true, "leader     not read yet": true, "records    7": true, "manifest   4": true, "published  not read: denied": true, "tail": false, "not folded": false, "pins": false, "nobody": false} {
		if strings.Contains(out, want) != there {
			t.Errorf("%q is there: %t\n%s", want, !there, out)
		}
	}
}

// TestNothingMovesTheCursor: whatever is in the store.
func TestNothingMovesTheCursor(t *testing.T) {
	const evil = "\x1b[2J\u009b2J\u202e"
	out := screen.Render([]outside.State{{URL: evil, Now: now, Log: &outside.Log{
		Read: outside.Parts{Manifest: true, Pins: true}, PublishedErr: evil, Terms: []outside.Term{{Epoch: 2, Known: true, Holder: evil, State: evil}, {Epoch: 1, Known: true, Holder: evil, State: evil, From: now}},
		Manifests: []outside.Manifest{{By: evil}}, Pins: []outside.Pin{{Holder: "x", Name: evil}},
	}}, {URL: "y", Now: now, Group: &outside.Group{Name: evil, Members: []outside.Member{{Identity: evil}}}}}, 100, 0, false)
	if strings.ContainsAny(out, "\x1b\u009b\u202e") {
		t.Errorf("%q", out)
	}
}
