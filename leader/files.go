package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
)

// files reads and writes the lock files below a prefix.
type files struct {
	st      store.Store
	prefix  string // ends in "/"
	clock   clock.Clock
	timeout time.Duration  // of one request
	jitter  func() float64 // of retries; nil: another one every time
}

// once are the options for reads: the machine paces them, and a late answer is
// of no use to it.
func (f *files) once() *store.SettleOptions {
	return &store.SettleOptions{Attempt: f.timeout, Reads: 1, Clock: f.clock, Random: f.jitter}
}

// writes are those for conditional writes, which go on until settled or ctx
// ends.
func (f *files) writes() *store.SettleOptions {
	return &store.SettleOptions{Attempt: f.timeout, MaxBackoff: min(2*time.Second, f.timeout), Clock: f.clock, Random: f.jitter}
}

// each calls visit with every lock after a number. A listing that breaks off
// begins again, so a lock may come twice.
func (f *files) each(ctx context.Context, after uint64, opts *store.SettleOptions, visit func(epoch uint64, info store.Info)) error {
	var list store.ListOptions
	if after > 0 {
		list.StartAfter = lockKey(f.prefix, after)
	}
	for info, err := range store.ListAll(ctx, f.st, f.prefix, &list, opts) {
		if err != nil {
			return err
		}
		// Names that are not understood are nobody's locks.
		if epoch, ok := parseKey(f.prefix, info.Key); ok && epoch > after {
			visit(epoch, info)
		}
	}
	return nil
}

var errNoAnswer = errors.New("leader: no answer in time")

// newest lists for the highest number after one.
func (f *files) newest(ctx context.Context, after uint64) (epoch uint64, version store.Version, err error) {
	ctx, cancel := clock.WithTimeout(ctx, f.clock, f.timeout, errNoAnswer)
	defer cancel()
	err = f.each(ctx, after, f.once(), func(e uint64, info store.Info) {
		if e > epoch {
			epoch, version = e, info.Version
		}
	})
	return epoch, version, err
}

// read gets a lock; an unreadable one is ErrJunk or ErrFormat.
func (f *files) read(ctx context.Context, epoch uint64, known store.Version, opts *store.SettleOptions) (Record, *lease.Age, error) {
	key := lockKey(f.prefix, epoch)
	body, info, err := store.Read(ctx, f.st, key, &store.ReadOptions{IfNoneMatch: known, Limit: maxRecord, Settle: opts})
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return Record{}, nil, junkError(key, fmt.Sprintf("it is larger than %d bytes", maxRecord))
	case err != nil:
		return Record{}, nil, err
	}
	rec, err := decode(key, epoch, body, info)
	return rec, age(info), err
}

// age tells how old a version is by the store's clock alone. Both times are
// rounded to whatever the store keeps.
func age(info store.Info) *lease.Age {
	since, known := info.Age()
	if !known {
		return nil
	}
	return &lease.Age{Since: since, Slack: resolution(info.Date) + resolution(info.LastModified)}
}

func resolution(t time.Time) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if t.Nanosecond()%int(unit) == 0 {
			return unit
		}
	}
	return time.Microsecond
}

// swap writes rec over a version, clean tells that no copy can land later.
func (f *files) swap(ctx context.Context, rec Record, old store.Version) (v store.Version, clean bool, err error) {
	body, err := rec.encode()
	if err != nil {
		return "", false, err
	}
	return f.swapBody(ctx, lockKey(f.prefix, uint64(rec.Epoch)), body, old)
}

func (f *files) swapBody(ctx context.Context, key string, body []byte, old store.Version) (store.Version, bool, error) {
	// guard:swap. Over the version that its sender knows, and nothing else.
	//
	//mutant:replace info, clean, err := store.SwapClean(ctx, f.st, key, body, old, &store.WriteOptions{Settle: f.writes()}) => info, err := f.st.Put(ctx, key, body, nil); clean := true
	info, clean, err := store.SwapClean(ctx, f.st, key, body, old, &store.WriteOptions{Settle: f.writes()})
	return info.Version, clean, err
}

func (f *files) create(ctx context.Context, rec Record) (store.Version, error) {
	body, err := rec.encode()
	if err != nil {
		return "", err
	}
	// guard:create. A number is won by who creates it.
	//
	//mutant:replace store.Create(ctx, f.st, lockKey(f.prefix, uint64(rec.Epoch)), body, &store.WriteOptions{Settle: f.writes()}) => f.st.Put(ctx, lockKey(f.prefix, uint64(rec.Epoch)), body, nil)
	info, err := store.Create(ctx, f.st, lockKey(f.prefix, uint64(rec.Epoch)), body, &store.WriteOptions{Settle: f.writes()})
	return info.Version, err
}
