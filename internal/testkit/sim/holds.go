package sim

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// hold is a pin, as one sees it who looks into the store. No client has a say in it.
type hold struct {
	key     string
	node    *node
	version uint64
	// settled: its holder has written it a second time, and so knows that it was made.
	// good: its holder was told that it holds. lost: it was taken away or given up,
	// for ever, whatever may land later.
	settled, good, lost bool
	needs               map[string]bool // what its version names, and the version
}

// holds are all pins that there ever were, and what became of files.
type holds struct {
	mu          sync.Mutex
	byKey       map[string]*hold
	last        map[*node]*hold // the one that a node has made last
	swept       map[string]int  // file → step at which it was deleted first
	held, taken int             // how many were good, and how many were taken away then
}

func newHolds() *holds {
	return &holds{byKey: map[string]*hold{}, last: map[*node]*hold{}, swept: map[string]int{}}
}

// valid tells whether the pin holds: all that it protects has to be there, and to
// have been there since its holder was told.
func (w *world) valid(h *hold) bool {
	if h == nil {
		return false
	}
	w.holds.mu.Lock()
	defer w.holds.mu.Unlock()
	return h.good && !h.lost
}

// gone tells whether the pin was taken away.
func (w *world) gone(h *hold) bool {
	if h == nil {
		return false
	}
	w.holds.mu.Lock()
	defer w.holds.mu.Unlock()
	return h.lost
}

// pinned notes that the object of a pin was written.
func (w *world) pinned(r *request) {
	var doc struct {
		Version uint64 `json:"version"`
		Expired bool   `json:"expired"`
	}
	if json.Unmarshal(r.body, &doc) != nil {
		return
	}
	s := w.holds
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byKey[r.key]
	if h == nil {
		h = &hold{key: r.key, node: r.node, version: doc.Version}
		s.byKey[r.key] = h
		if was := s.last[r.node]; was == nil || was.key < h.key { // else it is one that lands late
			s.last[r.node] = h
		}
	}
	if r.cond != store.IfAbsent() && r.node == h.node {
		h.settled = true
	}
	if h.lost && !h.settled && !h.good && r.cond == store.IfAbsent() {
		h.lost = false // made anew by one who has not heard that it was there; or a late copy
	}
	if doc.Expired && !h.lost {
		h.lost = true
		if h.good {
			s.taken++
		}
	}
}

// deleted notes that an object was deleted. Nothing that a pin holds may be, nor a pin
// that holds, but by its holder: others swap it first.
func (w *world) deleted(key string, by *node) {
	s := w.holds
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind, _, _ := strings.Cut(key, "/"); kind {
	case "pin":
		if h := s.byKey[key]; h != nil {
			if h.good && !h.lost && by != nil && by != h.node {
				w.history.broken("unpinned", "the pin of %s on version %d is deleted by %s, and nobody has taken it away", h.node.name, h.version, by.name)
			}
			h.lost = true
		}
	case "manifest", "segment", "list", "file":
		for _, h := range s.byKey {
			if h.good && !h.lost && h.needs[key] {
				w.history.broken("pruned", "%s is deleted, which the pin of %s on version %d holds", short(mask(key)), h.node.name, h.version)
				break
			}
		}
		if _, again := s.swept[key]; kind == "file" && !again {
			s.swept[key] = w.steps
		}
	}
}

// held notes that a node was told that its last pin holds.
func (w *world) held(n *node, version uint64) *hold {
	w.holds.mu.Lock()
	h := w.holds.last[n]
	w.holds.mu.Unlock()
	switch {
	case n.crashed():
		return h
	case h == nil || h.version != version:
		w.history.broken("client", "%s holds version %d and has no pin on it", n.name, version)
		return nil
	case w.gone(h):
		return h // already, and nobody has told
	}
	needs := w.names(n, version)
	w.holds.mu.Lock()
	h.good, h.needs = true, needs
	w.holds.held++
	w.holds.mu.Unlock()
	w.tellf(n.name, "holds version %d", version)
	return h
}

// names returns the keys of all that a version of the manifest names, and its own.
// They have to be there.
func (w *world) names(n *node, version uint64) map[string]bool {
	needs := map[string]bool{}
	if version == 0 {
		return needs
	}
	if w.log == nil {
		d := w.direct("names")
		var err error
		if w.log, err = state.Open(context.Background(), d.store(), &state.Options{Settle: d.settle(), Clock: d.clock}); err != nil {
			w.history.broken("client", "%v", err)
			return needs
		}
	}
	ctx := context.Background()
	m, _, err := w.log.At(ctx, version)
	if err != nil {
		w.history.broken("pruned", "version %d, which %s has pinned, cannot be read: %v", version, n.name, err)
		return needs
	}
	needs[layout.ManifestKey(version)] = true
	for _, key := range w.log.Lists(m) {
		needs[key] = true
	}
	for s, err := range w.log.Segments(ctx, m, 0) {
		if err != nil {
			break // a list is missing, which is noticed below
		}
		needs[s.Key] = true
	}
	for f, err := range w.log.Files(ctx, m) {
		if err != nil {
			break
		}
		needs[f.Key] = true
	}
	for key := range needs {
		if w.bucket.objects[key] == nil {
			w.history.broken("pruned", "%s is not there, which the pin of %s on version %d holds", short(mask(key)), n.name, version)
		}
	}
	return needs
}
