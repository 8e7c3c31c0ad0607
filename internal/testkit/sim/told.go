package sim

import (
	"errors"

	"github.com/fencepost/fencepost/writer"
)

// Told collects what the clients of a log were told outside the simulation, by real
// processes on real servers. It does not know the times of operations, so it does not check
// their order. It checks all else that the simulation checks of a log's contents. It is
// safe for concurrent use.
type Told struct{ h history }

// Appended records the outcome of one append of values.
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

// Check compares all outcomes with the log's contents and returns every broken promise. No
// outcome may be recorded at the same time.
func (t *Told) Check(contents []string) error {
	t.h.final, t.h.partial = contents, true
	t.h.checkContents()
	return errors.Join(t.h.wrong...)
}
