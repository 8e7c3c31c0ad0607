package sim

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/reader"
)

// readTable reads the table and checks the contents of its files.
func (w *world) readTable(ctx context.Context, n *node) *table {
	r, err := reader.Open(ctx, n.store(), &reader.Options{Settle: n.settle(), Clock: n.clock})
	if err != nil {
		w.history.broken("read", "%v", err)
		return nil
	}
	s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		w.history.broken("read", "the table: %v", err)
		return nil
	}
	seen := &table{end: s.End(), files: map[string]int64{}, properties: s.Properties(), live: s.Live()}
	for f, err := range s.Files(ctx) {
		if err != nil {
			w.history.broken("read", "the table: %v", err)
			return nil
		}
		seen.files[f.Key] = f.Size
		o := w.bucket.objects[f.Key]
		if o == nil {
			w.history.broken("swept", "%s is a file of the table, but does not exist", short(mask(f.Key)))
		} else if want, known := w.history.content(f.Key); !known || string(o.body) != want {
			w.history.broken("content", "%s contains %q, but %q was written", short(mask(f.Key)), o.body, want)
		}
	}
	return seen
}

// sameTable checks that the table has not changed since the nodes ended.
func (w *world) sameTable(ctx context.Context, n *node) {
	was := w.history.table
	if was == nil {
		return
	}
	if now := w.readTable(ctx, n); now != nil && (!maps.Equal(was.files, now.files) || !maps.Equal(was.properties, now.properties)) {
		w.history.broken("changed", "the table changed from %v %v to %v %v", was.files, was.properties, now.files, now.properties)
	}
}

// tidy deletes all pins and runs a last compactor. Afterwards exactly the needed objects
// must remain.
func (w *world) tidy(ctx context.Context, n *node) {
	for _, key := range slices.Collect(maps.Keys(w.bucket.objects)) {
		if strings.HasPrefix(key, layout.PinPrefix) {
			w.bucket.delete([]string{key}, nil)
		}
	}
	epoch := w.manifest().Roles[layout.Compactor].Epoch + 1
	c, err := compactor.New(n.store(), &compactor.Options{Token: fence.NewToken(epoch), FanIn: 2, NoCompress: true, Settle: n.settle(), Clock: n.clock})
	if err != nil {
		w.history.broken("client", "%v", err)
		return
	}
	// The first pass notes what can be pruned, the next prunes what has passed the grace.
	// The third prunes what those two replaced.
	for range 3 {
		if _, err := c.Once(ctx); err != nil {
			w.history.broken("end", "the last compactor: %v", err)
			return
		}
		w.now += w.plan.Grace + 2*time.Second
	}
	w.checkLeft(ctx, n)
}

// checkLeft checks that no object remains that the newest manifest does not
// name. It checks segments, pages and files.
func (w *world) checkLeft(ctx context.Context, n *node) {
	m := w.manifest()
	named := w.names(n, m.Version)
	if w.log == nil {
		return // there is no manifest, or names has reported it
	}
	for s, err := range w.log.Segments(ctx, m, 0) {
		if err == nil && s.End <= m.Start {
			w.history.broken("left", "the segment of the records from offset %d to %d remains, although they are truncated", s.First, s.End)
		}
	}
	for key := range w.bucket.objects {
		switch kind, _, _ := strings.Cut(key, "/"); kind {
		case "segment", "list", "file":
			if !named[key] {
				w.history.broken("left", "%s remains, although the newest manifest does not name it", short(mask(key)))
			}
		}
	}
	if w.history.table == nil {
		return
	}
	// Commits that waited together are one edit, so there may be fewer.
	if n := len(w.history.table.ids()); m.Edits > uint64(n) {
		w.history.broken("twice", "the manifest counts %d edits, but only %d commits are in the table", m.Edits, n)
	}
}
