package reader

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of a reader. The zero value works.
type Options struct {
	// PollMin and PollMax bound the pause before the tail is looked at again, which
	// is an eighth of the time for which nothing has come: at least PollMin, default
	// 10 ms, and at most PollMax, default 1 s.
	PollMin, PollMax time.Duration
	// Ahead is how many objects of the log's tail are fetched at once, default 64.
	Ahead int
	// Prefetch is how many bytes are fetched ahead, and how many are kept
	// decompressed besides; default 64 MiB. A single large object may exceed it.
	Prefetch int64
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger is silent by default.
	Logger *zap.Logger
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.PollMin == 0 {
		v.PollMin = 10 * time.Millisecond
	}
	if v.PollMax == 0 {
		v.PollMax = max(time.Second, v.PollMin)
	}
	if v.Prefetch == 0 {
		v.Prefetch = 64 << 20
	}
	if v.Logger == nil {
		v.Logger = zap.NewNop()
	}
	v.Clock = clock.Or(v.Clock)
	switch {
	case v.PollMin < 0 || v.PollMax < v.PollMin:
		return v, fmt.Errorf("reader: PollMin is %v and PollMax is %v; 0 < PollMin ≤ PollMax must hold", v.PollMin, v.PollMax)
	case v.Ahead < 0 || v.Ahead > 4096:
		return v, fmt.Errorf("reader: Ahead is %d; it must be from 1 to 4096", v.Ahead)
	case v.Prefetch < 0:
		return v, fmt.Errorf("reader: Prefetch is %d bytes; it must not be negative", v.Prefetch)
	}
	return v, nil
}
