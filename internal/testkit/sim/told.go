package sim

import (
	"errors"

	"github.com/fencepost/fencepost/writer"
)

// Told is what the clients of a log were told, outside the simulation: of real
// processes on real servers. Nothing is known of when, so the order of operations
// is not checked; all else that the simulation checks of a log's contents is. It is
// safe for concurrent use.
type Told struct{ h history }

// Appended notes what an append of values in one atom was told.
func (t *Told) Appended(node string, epoch uint64, values []string, offset uint64, err error) {
	o := op{kind: opAppend, node: node, epoch: epoch, values: values, offset: offset}
	switch {
	case err == nil:
		o.outcome = yes
	case errors.Is(err, writer.ErrNotCommitted):
		o.outcome = no
	}
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	t.h.ops = append(t.h.ops, o)
}

// Counts returns how many records were acknowledged, refused and unknown.
func (t *Told) Counts() (acked, never, unknown int) {
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	return t.h.counts()
}

// Check holds it all against the log's contents, and returns every promise that
// was broken. Nothing may be noted beside it.
func (t *Told) Check(contents []string) error {
	t.h.final, t.h.partial = contents, true
	t.h.checkContents()
	return errors.Join(t.h.wrong...)
}
