package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	historyverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/history"
	pinverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/pin"
	statusverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/status"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// TestPinThatFails: a pin of which nobody was told is released, or lapses by itself.
func TestPinThatFails(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	must(t, "", "compact", url)
	mem := openStore(t, url)
	for left, ttl := range []string{"", "2m"} { // only the second one leaves its pin
		var out, errs buffer
		a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(context.Context, string) (store.Store, error) {
			st := faultstore.New(mem, nil)
			pinned := false
			st.SetHook(func(op faultstore.Op) (f faultstore.Fault) {
				if op.Kind == faultstore.Get && pinned && strings.HasPrefix(op.Key, layout.DataPrefix) {
					f = faultstore.Fault{Drop: true, Err: &store.Error{Op: "get", Key: op.Key, Kind: store.ErrDenied}}
				}
				pinned = pinned || op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.PinPrefix)
				return f
			})
			return st, nil
		}}
		args := []string{"pin", "--name", "x", url}
		if ttl != "" {
			args = append(args, "--ttl", ttl)
		}
		status := runWith(t.Context(), a, args)
		if pins := keysOf(t, mem, layout.PinPrefix); status != 1 || len(pins) != left || (left > 0) != strings.Contains(errs.String(), "lapses in 2m0s") {
			t.Errorf("ttl %q: status %d, %q, %s%s", ttl, status, pins, &out, &errs)
		}
	}
}

// TestPinNothing: where no manifest is, there is nothing to pin.
func TestPinNothing(t *testing.T) {
	url := newLog(t, memURL(t))
	if r := run(t, "", "pin", "--name", "x", url); r.status != 1 || !strings.Contains(r.err, "no manifest yet") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	if pins := keysOf(t, openStore(t, url), layout.PinPrefix); len(pins) != 0 {
		t.Errorf("pins %q", pins)
	}
}

// TestPinUnread: nobody reads what pin prints. It ends with status 0, so the pin is there.
func TestPinUnread(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	must(t, "", "compact", url)
	in, out := io.Pipe()
	_ = in.Close()
	var errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: out, Err: &errs, Open: store.Open}
	if status := runWith(t.Context(), a, []string{"pin", "--name", "x", url}); status != 0 {
		t.Errorf("status %d: %s", status, &errs)
	}
	if pins := keysOf(t, openStore(t, url), layout.PinPrefix); len(pins) != 1 {
		t.Errorf("pins %q", pins)
	}
}

// TestNamesAreHarmless: names and reasons that others have chosen neither steer the terminal nor
// add lines to what it shows.
func TestNamesAreHarmless(t *testing.T) {
	const evil = "x\x1b[31m\ny\u202ez\tw"
	check := func(what, out string, lines int) {
		t.Helper()
		if strings.ContainsAny(out, "\x1b\u202e\t") || strings.Count(out, "\n") != lines || !strings.Contains(out, `x\x1b[31m\ny\u202ez\tw`) {
			t.Errorf("%s:\n%q", what, out)
		}
	}
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	must(t, "", "compact", url)
	check("pin", must(t, "", "pin", "--name", evil, url), 1)
	check("pins", must(t, "", "pins", url), 2)
	check("unpin", must(t, "", "unpin", evil, url), 1)
	check("unpin of none", run(t, "", "unpin", evil, url).err, 1)
	check("a pin that lapsed", string(pinverb.Table(survey.Pins([]manifest.Pin{{Name: "a", Expired: true, Reason: evil, Holder: evil}}))), 2)

	check("history", string(historyverb.Table([]historyverb.TermDoc{{Term: survey.Term{Epoch: 1, Holder: evil}}})), 2)
	check("history of one deposed", string(historyverb.Table([]historyverb.TermDoc{{Term: survey.Term{Epoch: 1, Reason: evil, EndedBy: evil}}})), 2)
	led := survey.Term{Epoch: 1, Holder: evil, Reason: "resigned"}
	check("status of a lock", string(statusverb.LockTable(&survey.Lock{Leader: led}, time.Now())), 3)
	status := statusverb.Table(&survey.Log{Leader: led})
	check("status", string(status), bytes.Count(status, []byte("\n")))
	var errs buffer
	kit.NewConsole(&errs, false, 0).Note("waiting for %s", evil)
	check("a note", strings.ReplaceAll(errs.String(), "m\n", `m\n`), 1)
	check("an error", kit.Line(errors.New(strings.ReplaceAll(evil, "\n", `\n`)))+"\n", 1)
	bad := historyverb.TermOf(leader.Record{Epoch: 1}, errors.New(evil))
	check("history with a damaged lock", strings.ReplaceAll(string(historyverb.Table([]historyverb.TermDoc{bad})), "; ", `\n`), 2)
}
