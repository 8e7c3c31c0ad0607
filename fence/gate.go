package fence

import (
	"context"
	"fmt"
	"sync"
)

// Gate fences a sink that is not a log: it remembers the highest epoch that it has seen
// and refuses lower ones. The leader sends its epoch with every request, and the sink
// passes it through the gate before the effect. The zero Gate has seen nothing. A Gate is
// safe for concurrent use and must not be copied.
//
// A gate forgets when its process ends: see [Gate.Highest]. If the effect outlives that process, keep the
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
	mu      sync.Mutex
	highest Epoch
	inside  Epoch         // of the effects under way
	running int           // how many
	idle    chan struct{} // closed when none is under way any more; nil if nobody waits for that
}

// MaxEpoch is the greatest epoch that counts: no election comes there. One request with a number near the
// greatest possible one would otherwise refuse all leaders for ever.
const MaxEpoch Epoch = 1<<62 + 1<<40

// NewGate returns a gate that has seen epoch highest, such as one kept on disk.
func NewGate(highest Epoch) *Gate { return &Gate{highest: highest} }

// Highest returns the highest epoch that the gate has seen. Keep it where it outlives the process, before the
// effect.
func (g *Gate) Highest() Epoch {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.highest
}

// Do runs effect and returns its error, or refuses e with a [FencedError] if the gate has
// seen a higher epoch; epoch 0 is always refused. From the call on lower epochs are refused. Effects of one epoch run
// concurrently. An effect of a higher epoch waits until those of lower epochs that are under way have ended.
// So no effect of a lower epoch runs after one of a higher epoch. Effect must not use the gate.
//
// If ctx ends before effect has begun, Do returns ctx's cause, and effect does not run. Errors besides:
// [ErrLimit] for an epoch above [MaxEpoch], which changes nothing.
func (g *Gate) Do(ctx context.Context, e Epoch, effect func() error) error {
	if err := g.enter(ctx, e); err != nil {
		return err
	}
	defer g.leave()
	return effect()
}

func (g *Gate) enter(ctx context.Context, e Epoch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	// guard:gate-bound. An epoch above MaxEpoch, which is 2⁶² + 2⁴⁰, is refused and not remembered.
	if e > MaxEpoch {
		return fmt.Errorf("%w: epoch %d is above %d, and no election has such an epoch", ErrLimit, e, MaxEpoch)
	}
	for {
		switch {
		case e == 0 || e < g.highest:
			return &FencedError{Epoch: e, By: g.highest}
		case ctx.Err() != nil:
			// guard:gate-given-up. An effect whose caller has given up does not run.
			return context.Cause(ctx)
		}
		g.highest = e
		// guard:gate-inside. While effects of an earlier epoch are under way, none of a later one begins.
		//
		//mutant:replace g.running == 0 || g.inside == e => true
		if g.running == 0 || g.inside == e {
			g.inside = e
			g.running++
			return nil
		}
		if g.idle == nil {
			g.idle = make(chan struct{})
		}
		idle := g.idle
		g.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		g.mu.Lock()
	}
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}
