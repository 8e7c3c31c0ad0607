package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/writer"
)

// bent is a deliberate fault and the kinds of broken promises that the checks must
// report.
type bent struct {
	name    string
	notices []string
	bend    bend
}

// by reports whether a node of the role sent the request: w, c, r, s, b, or e for the
// final checks.
func by(r *request, role string) bool { return r.node != nil && strings.HasPrefix(r.node.role, role) }

func on(r *request, op, prefix string) bool { return r.op == op && strings.HasPrefix(r.key, prefix) }

// misreads shows nodes of a role changed manifests.
func misreads(role string, change func(m *state.Manifest)) bend {
	return func(b *bucket, r *request, now time.Duration) (reply, bool) {
		if !by(r, role) || !on(r, "get", "manifest/") {
			return reply{}, false
		}
		rep := b.get(r, now)
		rep.body = changed(rep.body, change)
		rep.info.Size = int64(len(rep.body))
		return rep, true
	}
}

// deletesToo makes a pruner also delete all objects under a prefix.
func deletesToo(prefix string) bend {
	return func(b *bucket, r *request, _ time.Duration) (reply, bool) {
		if by(r, "c") && on(r, "delete", "data/") {
			for _, i := range b.list(prefix, "", 0) {
				b.delete([]string{i.Key}, r.node)
			}
		}
		return reply{}, false
	}
}

func changed(body []byte, change func(m *state.Manifest)) []byte {
	m := &state.Manifest{}
	if json.Unmarshal(body, m) != nil {
		return body
	}
	change(m)
	b, err := document.Encode(layout.ManifestKey(m.Version), m)
	if err != nil {
		panic(err)
	}
	return b
}

var allBent = []bent{
	{"a pruner that sees no pins", []string{"pruned", "gone"}, func(_ *bucket, r *request, _ time.Duration) (reply, bool) {
		return reply{}, by(r, "c") && on(r, "list", layout.PinPrefix)
	}},
	{"a pruner that misses the last pin", []string{"pruned"}, func(b *bucket, r *request, now time.Duration) (reply, bool) {
		pins := b.list(layout.PinPrefix, "", now)
		return reply{infos: pins[:max(len(pins)-1, 0)]}, by(r, "c") && on(r, "list", layout.PinPrefix)
	}},
	{"a holder whose renewals have no effect", []string{"lapsed"}, func(_ *bucket, r *request, _ time.Duration) (reply, bool) {
		_, swap := r.cond.Match()
		return reply{info: store.Info{Key: r.key, Version: "bent"}}, by(r, "s") && on(r, "put", layout.PinPrefix) && swap && !bytes.Contains(r.body, []byte(`"renewals": 1,`))
	}},
	{"a pruner that deletes pins at once", []string{"unpinned"}, deletesToo(layout.PinPrefix)},
	{"a listing of pins that ends after its first page", []string{"pruned"}, func(_ *bucket, r *request, _ time.Duration) (reply, bool) {
		return reply{}, by(r, "c") && on(r, "list", layout.PinPrefix) && r.page > 0
	}},
	{"a compactor that sees records older than they are", []string{"truncated"}, misreads("c", func(m *state.Manifest) {
		for i := range m.Segments {
			m.Segments[i].From, m.Segments[i].To = m.Segments[i].From.Add(-time.Hour), m.Segments[i].To.Add(-time.Hour)
		}
	})},
	{"a store that changes files", []string{"content"}, func(b *bucket, r *request, now time.Duration) (reply, bool) {
		if !by(r, "s") || !on(r, "get", "file/") {
			return reply{}, false
		}
		rep := b.get(r, now)
		rep.body = bytes.ToUpper(rep.body)
		return rep, true
	}},
	{"a pruner that deletes any file", []string{"swept", "pruned"}, deletesToo("file/")},
	{"a pruner that sees no files", []string{"left"}, func(_ *bucket, r *request, _ time.Duration) (reply, bool) {
		return reply{}, (by(r, "c") || by(r, "end")) && on(r, "list", "file/")
	}},
	{"a reader that sees no tail", []string{"stale"}, func(_ *bucket, r *request, _ time.Duration) (reply, bool) {
		return fail("get", r.key, store.ErrNotFound, http.StatusNotFound), by(r, "s") && on(r, "get", "data/")
	}},
	{"a compactor that counts an edit twice", []string{"twice"}, func(b *bucket, r *request, _ time.Duration) (reply, bool) {
		if by(r, "end") && on(r, "put", "manifest/") {
			r.body = changed(r.body, func(m *state.Manifest) { m.Edits++ })
		}
		return reply{}, false
	}},
	{"a reader that misses a property", []string{"table"}, misreads("s", func(m *state.Manifest) { delete(m.Properties, "last") })},
	{"a reader that sees a wrong cursor", []string{"cursor"}, misreads("s", func(m *state.Manifest) { m.Floor.Cursor = []byte("elsewhere") })},
}

func init() {
	for _, b := range allBent {
		bends[b.name] = b.bend
	}
	// For TestExploreFinds. A writer's open sees only the manifests from before the
	// compactor.
	bends["an opener that does not list again"] = func(b *bucket, r *request, now time.Duration) (reply, bool) {
		old := slices.DeleteFunc(b.list(layout.ManifestPrefix, r.split, now), func(i store.Info) bool { return i.Key > layout.ManifestKey(1) })
		keep := by(r, "c") && on(r, "delete", layout.ManifestPrefix)
		return reply{infos: old}, keep || by(r, "w") && on(r, "list", layout.ManifestPrefix)
	}
	// p1 sees no manifest after the one that it has pinned.
	bends["a holder that does not read the mark"] = func(b *bucket, r *request, now time.Duration) (reply, bool) {
		pins := b.list(layout.PinPrefix, "", now)
		if !by(r, "p") || !on(r, "list", layout.ManifestPrefix) || len(pins) == 0 {
			return reply{}, false
		}
		var pin struct{ Version uint64 }
		if err := json.Unmarshal(b.objects[pins[0].Key].body, &pin); err != nil {
			panic(err)
		}
		return reply{infos: slices.DeleteFunc(b.list(r.key, r.split, now), func(i store.Info) bool { return i.Key > layout.ManifestKey(pin.Version) })}, true
	}
}

// rare are faults that many histories do not meet, and how many were passed over: a hint, which
// saves time until the histories change.
var rare = map[string]uint64{"a reader that sees no tail": 89, "a holder whose renewals have no effect": 92}

// Each check of pins, files and tables notices its fault.
func TestBentIsNoticed(t *testing.T) {
	for _, b := range allBent {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			missing := slices.Clone(b.notices)
			first := rare[b.name]
			n := uint64(0)
			for ; len(missing) > 0 && n < 500; n++ {
				p := NewPlan(1 + first + n)
				p.Bent, p.Edits, p.Snapshots, p.Backups = b.name, true, 2, 1
				p.Readers, p.Steps, p.Hurry = 0, 800, 0.2 // more of the nodes that the fault concerns
				p.Retain, p.Page = slices.Contains(b.notices, "truncated"), 0
				if strings.Contains(b.name, "page") {
					p.Page, p.Walks = 1, false
				}
				r := Run(t, p)
				missing = slices.DeleteFunc(missing, func(kind string) bool { return slices.Contains(r.kinds(), kind) })
			}
			t.Logf("%d histories after seed %d", n, first)
			if len(missing) > 0 {
				t.Errorf("no check reported %v", missing)
			}
		})
	}
}

// An edit with another outcome than its client expects is reported.
func TestConflictIsNoticed(t *testing.T) {
	gone := layout.FileKey(1, uuid.NewString(), ".f")
	for name, try := range map[string]func(ctx context.Context, e *editor){
		"the edit fits and is refused": func(ctx context.Context, e *editor) {
			e.commit(ctx, "a", manifest.Edit{Remove: []string{gone}}, nil, false)
		},
		"the edit does not fit and is accepted": func(ctx context.Context, e *editor) {
			e.commit(ctx, "a", manifest.Edit{Properties: map[string]string{"a": "b"}}, nil, true)
		},
	} {
		p := Plan{Seed: 1}
		w := newWorld(p, p.format())
		synctest.Test(t, func(t *testing.T) {
			n := w.direct("w1")
			n.rng = w.dice.rng
			wr, err := writer.Open(t.Context(), n.store(), fence.NewToken(2), n.writerOptions())
			if err != nil {
				t.Fatal(err)
			}
			var waits sync.WaitGroup
			try(t.Context(), &editor{node: n, wr: wr, waits: &waits, began: true})
			waits.Wait()
			if err := wr.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if err := errors.Join(w.history.wrong...); !strings.Contains(errText(err), "conflict: ") {
			t.Errorf("%s: not noticed: %v", name, err)
		}
	}
}
