package kit

import (
	"io"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// TestNotReady: a store that does not answer makes a process not ready, and not dead.
func TestNotReady(t *testing.T) {
	g := &Gauges{}
	if ok, _ := g.ready(); ok {
		t.Error("ready before the store has answered")
	}
	g.answered(store.Answer{Err: &store.Error{Op: "get", Kind: store.ErrNotFound}})
	if ok, _ := g.ready(); !ok {
		t.Error("an answer that there is nothing is an answer")
	}
	g.answered(store.Answer{Err: io.ErrUnexpectedEOF})
	if ok, _ := g.ready(); !ok {
		t.Error("one failure is enough not to be ready")
	}
	g.failing = g.failing.Add(-2 * patience)
	g.answered(store.Answer{Err: io.ErrUnexpectedEOF})
	if ok, _ := g.ready(); ok {
		t.Error("ready although the store is away")
	}
	g.answered(store.Answer{})
	if ok, _ := g.ready(); !ok {
		t.Error("not ready although the store is back")
	}
}
