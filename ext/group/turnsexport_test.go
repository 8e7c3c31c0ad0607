package group

import (
	"context"

	"github.com/fencepost/fencepost/clock"
)

// Turns is for tests.
type Turns struct{ turns }

// NewTurns has so many turns at once.
func NewTurns(n int) *Turns { return &Turns{turns{free: n}} }

// Take waits for a turn.
func (t *Turns) Take(ctx context.Context, partition int, since clock.Instant) error {
	return t.take(ctx, partition, since)
}

// Give ends a turn.
func (t *Turns) Give() { t.give() }
