package fence

import (
	"sync"
)

// Gate fences a sink that is not a log: it remembers the highest epoch that it has seen
// and refuses lower ones. The leader sends its epoch with every request, and the sink
// passes it through the gate before the effect. The zero Gate has seen nothing. A Gate is
// safe for concurrent use and must not be copied.
//
// A gate forgets when its process ends. If the effect outlives that process, keep the
// epoch next to the effect, and compare it in the same transaction. In SQL, with a column
// epoch bigint in the guarded row,
//
//	UPDATE account SET balance = $2, epoch = $1
//	 WHERE id = $3 AND epoch <= $1
//
// changes no row for a zombie: zero rows affected means [ErrFenced]. If an effect touches
// many rows, one row guards them all, in the same transaction:
//
//	UPDATE fence SET epoch = $1 WHERE name = 'orders' AND epoch <= $1
//
// Roll back unless that affects one row. Its row lock makes a successor's transaction
// wait until this one has ended.
type Gate struct {
	mu      sync.RWMutex // held for reading by effects, for writing to raise highest
	highest Epoch
}

// NewGate returns a gate that has seen epoch highest, such as one kept on disk.
func NewGate(highest Epoch) *Gate { return &Gate{highest: highest} }

// Check remembers e, or refuses it with a [FencedError] if the gate has seen a higher
// epoch; epoch 0 is always refused. It returns after all effects of lower epochs that run
// in [Gate.Do] have ended.
//
// A higher epoch may come between Check and an effect that follows it. Do has no such gap.
func (g *Gate) Check(e Epoch) error { return g.Do(e, func() error { return nil }) }

// Do runs effect and returns its error, or refuses e with a [FencedError] if the gate has
// seen a higher epoch. Effects of one epoch run concurrently. An effect of a higher epoch
// waits until those of lower epochs have ended, and from then on lower epochs are refused.
// So no effect of a lower epoch runs after one of a higher epoch. Effect must not use the
// gate.
func (g *Gate) Do(e Epoch, effect func() error) error {
	if e == 0 {
		g.mu.RLock()
		defer g.mu.RUnlock()
		return &FencedError{Epoch: e, By: g.highest}
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
