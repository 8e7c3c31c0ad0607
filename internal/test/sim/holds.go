package sim

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// hold is a pin as the store shows it, whatever its holder believes.
type hold struct {
	key     string
	node    *node
	version uint64
	// settled: the holder has written the pin a second time, so it knows that the create
	// was applied. good: the holder was told that the pin is valid. lost: the pin expired
	// or was released. That is final, whatever lands later.
	settled, good, lost bool
	needs               map[string]bool // its manifest, and all that the manifest names
}

// valid reports whether the pin is valid. Then all that it protects must exist, from the
// moment at which its holder was told.
func (h hold) valid() bool { return h.good && !h.lost }

// holds contains all pins of a history, and the files that were deleted.
type holds struct {
	mu    sync.Mutex
	byKey map[string]*hold
	last  map[*node]*hold // the pin that a node created last
	swept map[string]int  // file → step of its first deletion
}

// now returns the present state of a pin. There may be none.
func (s *holds) now(h *hold) hold {
	if h == nil {
		return hold{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *h
}

// pinned notes that a pin's object was written.
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
		if was := s.last[r.node]; was == nil || was.key < h.key { // otherwise an earlier create landed late
			s.last[r.node] = h
		}
	}
	if r.cond != store.IfAbsent() && r.node == h.node {
		h.settled = true
	}
	if h.lost && !h.settled && !h.good && r.cond == store.IfAbsent() {
		h.lost = false // its create was repeated, by the holder or by a late copy
	}
	if doc.Expired && !h.lost {
		h.lost = true
		if h.good {
			w.count.Taken++
		}
	}
}

// deleted checks the deletion of an object. An object that a valid pin protects must not
// be deleted. A valid pin may be deleted only by its holder: other nodes must first swap
// it to expired.
func (w *world) deleted(key string, by *node) {
	s := w.holds
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind, _, _ := strings.Cut(key, "/"); kind {
	case "pin":
		if h := s.byKey[key]; h != nil {
			if h.valid() && by != nil && by != h.node {
				w.history.broken("unpinned", "the pin of %s on version %d was deleted by %s before it was swapped to expired", h.node.name, h.version, by.name)
			}
			h.lost = true
		}
	case "manifest", "segment", "list", "file":
		for _, h := range s.byKey {
			if h.valid() && h.needs[key] {
				w.history.broken("pruned", "%s was deleted, although the pin of %s on version %d protects it", short(mask(key)), h.node.name, h.version)
				break
			}
		}
		if _, again := s.swept[key]; kind == "file" && !again {
			s.swept[key] = w.steps
		}
	}
}

// held notes that a node was told that its last pin is valid.
func (w *world) held(n *node, version uint64) *hold {
	w.holds.mu.Lock()
	h := w.holds.last[n]
	w.holds.mu.Unlock()
	switch {
	case n.crashed():
		return h
	case h == nil || h.version != version:
		w.history.broken("client", "%s was told that it holds version %d, but has no pin on it", n.name, version)
		return nil
	case w.holds.now(h).lost:
		return h // the pin has expired, and the node does not know it yet
	}
	needs := w.names(n, version)
	w.holds.mu.Lock()
	h.good, h.needs = true, needs
	w.count.Held++
	w.holds.mu.Unlock()
	w.tellf(n.name, "holds version %d", version)
	return h
}

// names returns the keys of a manifest and of all that it names. It reports those that do
// not exist.
func (w *world) names(n *node, version uint64) map[string]bool {
	needs := map[string]bool{}
	if version == 0 {
		return needs
	}
	if w.log == nil {
		d := w.direct("names")
		var err error
		if w.log, err = d.state(context.Background()); err != nil {
			w.history.broken("client", "%v", err)
			return needs
		}
	}
	ctx := context.Background()
	m, _, err := w.log.At(ctx, version)
	if err != nil {
		w.history.broken("pruned", "version %d, which %s needs, cannot be read: %v", version, n.name, err)
		return needs
	}
	needs[layout.ManifestKey(version)] = true
	for _, key := range w.log.Lists(m) {
		needs[key] = true
	}
	for s, err := range w.log.Segments(ctx, m, 0) {
		if err != nil {
			break // a page is missing, which the loop over needs reports
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
			w.history.broken("pruned", "%s is missing, although %s needs version %d, which names it", short(mask(key)), n.name, version)
		}
	}
	return needs
}
