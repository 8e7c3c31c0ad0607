package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
)

// publishing is how long to wait for a publisher that runs: it looks for edits ten times a second by default.
const publishing = 2 * time.Second

// table checks the Delta table that is published from the log, if there is one.
func (x *examination) table(ctx context.Context) {
	const check = "published table"
	switch {
	case x.format.Files == nil || x.files != nil:
	case x.given():
		remedy, err := x.noFiles()
		x.cannot(check, err, remedy)
		return
	default:
		x.add(check, Unseen, "", "the files are in %s; give its URL with --files", x.format.Files.Store)
		return
	}
	root, r, edits, err := x.published(ctx)
	if err == nil && r.Sources[0].Manifest > 0 {
		x.place, x.heldAt = inTable, r.Sources[0].Manifest
	}
	switch {
	case errors.Is(err, delta.ErrNoTable):
		x.place = noTable
		x.add(check, OK, "", "none in %s", root.Traits().Name)
	case errors.Is(err, delta.ErrUnpublished):
		x.place = takenOut
		x.add(check, OK, "", "the log was taken out of it: see `fencepost unpublish`")
	case errors.Is(err, delta.ErrForeign):
		x.add(check, Problem, "let only `fencepost publish` write below _delta_log/; docs/delta.md says how to begin a table anew", "%v", err)
	case errors.Is(err, delta.ErrDamaged):
		x.add(check, Problem, "restore the object that is named, or publish the table anew: see docs/delta.md", "%v", err)
	case errors.Is(err, delta.ErrSource):
		x.add(check, Problem, "see docs/delta.md", "%v", err)
	case err != nil:
		x.failed(check, err, "run `fencepost published`, and see docs/delta.md")
	case r.Sources[0].Published < edits:
		x.add(check, Warning, "if that does not change, no publisher runs, or it cannot publish: run `fencepost publish`, which says why, and keep `fencepost publish --watch` running",
			"it has %d of %d edits of the log", r.Sources[0].Published, r.Sources[0].Edits)
	default:
		x.add(check, OK, "", "version %d has all %d edits", r.Version, edits)
	}
}

// published returns where the table is, what is published of the log, and how many edits it should have by
// now. If some are missing, it looks again a moment later: a publisher that runs may not have seen them yet.
func (x *examination) published(ctx context.Context) (root store.Store, r delta.Report, edits uint64, err error) {
	root, source := x.Files, delta.Source{Log: x.st}
	if x.format.Files == nil {
		root, source, err = delta.Beside(x.st)
	}
	var p *delta.Publisher
	if err == nil {
		p, err = delta.Open(ctx, root, []delta.Source{source}, nil)
	}
	if err != nil {
		return root, r, 0, err
	}
	for range 2 {
		if r, err = p.Status(ctx); err == nil {
			err = r.Err()
		}
		if err != nil {
			return root, r, 0, err
		}
		if edits == 0 {
			edits = r.Sources[0].Edits
		}
		if r.Sources[0].Published >= edits {
			break
		}
		if err := clock.Sleep(ctx, clock.System(), publishing); err != nil {
			return root, r, 0, err
		}
	}
	return root, r, edits, nil
}
