package fence

import (
	"sync"
)

// Gate carries the fence to a sink that is not an object store: it remembers
// the highest epoch seen and refuses lower ones. The writer sends its epoch with
// every request; the sink passes it through the gate before the effect. The zero
// Gate has seen nothing. It is safe for concurrent use and must not be copied.
//
// A gate remembers as long as the process that it is in. Where the effect
// outlives that process, the memory belongs next to the effect, and the
// comparison into the same transaction. In SQL, with a column epoch bigint in
// the guarded row,
//
//	UPDATE account SET balance = $2, epoch = $1
//	 WHERE id = $3 AND epoch <= $1
//
// changes no row for a zombie: zero rows affected means [ErrFenced]. For effects
// that touch many rows, one row guards them all, within their transaction:
//
//	UPDATE fence SET epoch = $1 WHERE name = 'orders' AND epoch <= $1
//
// Roll back unless it affects one row. The row lock keeps a successor's
// transaction out until this one has ended.
type Gate struct {
	mu      sync.RWMutex // held for reading by effects, for writing to raise highest
	highest Epoch
}

// NewGate returns a gate that has seen epoch highest, such as one kept on disk.
func NewGate(highest Epoch) *Gate { return &Gate{highest: highest} }

// Highest returns the highest epoch seen, 0 if there was none.
func (g *Gate) Highest() Epoch {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.highest
}

// Check remembers e, or refuses it with a [FencedError] if a higher epoch has
// been seen; epoch 0 is always refused. It returns when no effect of a lower
// epoch that runs in [Gate.Do] is under way.
//
// Between Check and an effect that follows it a higher epoch may come in; Do has
// no such gap.
func (g *Gate) Check(e Epoch) error { return g.Do(e, func() error { return nil }) }

// Do runs effect if e is not stale, and returns its error, or a [FencedError].
// Effects of one epoch run concurrently. A higher epoch waits for those of lower
// ones that have begun, and after it they are refused: no effect of a lower
// epoch comes after one of a higher. Effect must not use the gate.
func (g *Gate) Do(e Epoch, effect func() error) error {
	if e == 0 {
		return &FencedError{Epoch: e, By: g.Highest()}
	}
	for {
		done, err := g.try(e, effect)
		if done {
			return err
		}
		g.raise(e)
	}
}

// try runs effect if e is the highest epoch. It is false if e is higher still.
func (g *Gate) try(e Epoch, effect func() error) (bool, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case e < g.highest:
		return true, &FencedError{Epoch: e, By: g.highest}
	case e > g.highest:
		return false, nil
	}
	return true, effect()
}

// raise waits for the effects under way.
func (g *Gate) raise(e Epoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.highest = max(g.highest, e)
}
