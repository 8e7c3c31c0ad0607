package survey

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

var errNoTime = errors.New("the store does not tell when an object was written")

// measureSkew compares the store's time of day with this machine's. It writes the
// object tmp/<uuid> and deletes it again. The store's time is this machine's plus
// offset, ± uncertainty. Only people need it: nothing in Fencepost depends on the
// time of day.
func measureSkew(ctx context.Context, st store.Store, c clock.Clock) (offset, uncertainty time.Duration, err error) {
	key := "tmp/" + uuid.NewString()
	opts := &store.SettleOptions{Clock: c}
	wall, sent := c.Wall(), c.Now()
	info, err := store.Create(ctx, st, key, []byte(key), &store.WriteOptions{Settle: opts})
	took := c.Now().Sub(sent)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		err = errors.Join(err, store.DeleteAll(context.WithoutCancel(ctx), st, []string{key}, opts))
	}()
	written := info.LastModified
	if written.IsZero() {
		// S3 tells it only to readers.
		_, read, err := store.ReadAll(ctx, st, key, int64(len(key)), opts)
		if err != nil {
			return 0, 0, err
		}
		if written = read.LastModified; written.IsZero() {
			return 0, 0, errNoTime
		}
	}
	// The object was written at some moment of the request, and the store cut the time
	// to its resolution.
	cut := time.Microsecond
	for _, unit := range []time.Duration{time.Millisecond, time.Second} {
		if written.Nanosecond()%int(unit) == 0 {
			cut = unit
		}
	}
	offset = written.Add(cut / 2).Sub(wall.Add(took / 2)).Round(time.Millisecond)
	return offset, (took + cut) / 2, nil
}
