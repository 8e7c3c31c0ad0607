package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Skew is how far the store's clock is from this machine's.
type Skew struct {
	// Offset is the store's time of day minus this machine's, give or take
	// Uncertainty.
	Offset, Uncertainty time.Duration
}

func (s Skew) String() string { return fmt.Sprintf("%+v ± %v", s.Offset, s.Uncertainty) }

// ErrNoTime: the store does not tell when an object was written.
var ErrNoTime = errors.New("leader: the store tells no times")

// MeasureSkew compares the store's time of day with this machine's, by writing
// the object tmp/<uuid> and deleting it again. It is for people to look at: no
// decision of an election depends on it, or on any time of day.
func MeasureSkew(ctx context.Context, st store.Store) (Skew, error) {
	return measureSkew(ctx, st, clock.System())
}

func measureSkew(ctx context.Context, st store.Store, c clock.Clock) (skew Skew, err error) {
	key := "tmp/" + uuid.NewString()
	opts := &store.SettleOptions{Clock: c}
	wall, sent := c.Wall(), c.Now()
	info, err := store.Create(ctx, st, key, []byte(key), &store.WriteOptions{Settle: opts})
	took := c.Now().Sub(sent)
	if err != nil {
		return Skew{}, err
	}
	defer func() {
		err = errors.Join(err, store.DeleteAll(context.WithoutCancel(ctx), st, []string{key}, opts))
	}()
	if info.LastModified.IsZero() {
		// S3 tells it only when asked.
		_, read, err := store.ReadAll(ctx, st, key, int64(len(key)), opts)
		if err != nil {
			return Skew{}, err
		}
		info.LastModified = read.LastModified
	}
	if info.LastModified.IsZero() {
		return Skew{}, ErrNoTime
	}
	// It was written at some moment of the request, and its time was cut to the
	// store's resolution.
	cut := resolution(info.LastModified)
	written, here := info.LastModified.Add(cut/2), wall.Add(took/2)
	return Skew{Offset: written.Sub(here).Round(time.Millisecond), Uncertainty: (took + cut) / 2}, nil
}
