package sim

import (
	"errors"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/writer"
)

// Told records what the clients of a real log were told, outside the simulation. It does
// not know when, so it does not check the order of operations. It makes all other checks
// of the log's contents that the simulation makes. It is safe for concurrent use.
type Told struct{ h history }

// Appended records the result of one append.
func (t *Told) Appended(node string, epoch fence.Epoch, values []string, offset uint64, err error) {
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
	var c Counts
	t.h.count(&c)
	return c.Acked, c.Never, c.Maybe
}

// Check compares the results with the log's contents. It returns all promises that were
// broken. Do not call it while Appended runs.
func (t *Told) Check(contents []string) error {
	t.h.final, t.h.partial = contents, true
	t.h.checkContents()
	return errors.Join(t.h.wrong...)
}
