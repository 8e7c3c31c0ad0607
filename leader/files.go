package leader

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// files reads and writes the lock files under a prefix.
type files struct {
	st      store.Store
	prefix  string // ends in "/"
	clock   clock.Clock
	timeout time.Duration  // of one request
	jitter  func() float64 // of retries
	outage  *outage.Log
	logger  *zap.Logger
	passed  atomic.Bool // an object was passed over, and the log says so
}

// settle returns the options of requests. A read is tried that often, or the
// store's default if reads is 0. A write is retried until its outcome is known or
// its context ends.
func (f *files) settle(reads int) *store.SettleOptions {
	return &store.SettleOptions{Attempt: f.timeout, MaxBackoff: min(2*time.Second, f.timeout), Reads: reads, Clock: f.clock, Random: f.jitter, Retrying: f.outage.Failed}
}

// each calls visit with every lock after an epoch. A listing that breaks off begins
// again, so a lock may come twice.
func (f *files) each(ctx context.Context, after fence.Epoch, opts *store.SettleOptions, visit func(epoch fence.Epoch, info store.Info)) error {
	var list store.ListOptions
	if after > 0 {
		list.StartAfter = layout.LockKey(f.prefix, after)
	}
	for info, err := range store.ListAll(ctx, f.st, f.prefix, &list, opts) {
		if err != nil {
			return err
		}
		// Objects with other names are not locks.
		epoch, ok := layout.ParseLockKey(f.prefix, info.Key)
		if !ok {
			f.passOver(info.Key)
		}
		if ok && epoch > after {
			visit(epoch, info)
		}
	}
	return nil
}

// passOver says once that an object is no lock although its name is that of one.
func (f *files) passOver(key string) {
	if n, numbered := layout.ParseNumberedKey(f.prefix, key); numbered && f.passed.CompareAndSwap(false, true) {
		f.logger.Warn("an object is no lock: its number is above all that an election comes to; it is passed over; delete it",
			zap.String("key", key), sink.Epoch(fence.Epoch(n)), zap.Stringer("highest", fence.MaxEpoch))
	}
}

// highest returns the highest epoch after another, or 0 if there is none.
func (f *files) highest(ctx context.Context, after fence.Epoch, opts *store.SettleOptions) (epoch fence.Epoch, version store.Version, err error) {
	err = f.each(ctx, after, opts, func(e fence.Epoch, info store.Info) {
		if e >= epoch {
			epoch, version = e, info.Version
		}
	})
	return epoch, version, err
}

// read reads a lock. If that cannot be understood, the error is ErrCorrupt or
// ErrFormat.
func (f *files) read(ctx context.Context, epoch fence.Epoch, known store.Version, opts *store.SettleOptions) (Record, *lease.Age, error) {
	key := layout.LockKey(f.prefix, epoch)
	body, info, err := store.Read(ctx, f.st, key, &store.ReadOptions{IfNoneMatch: known, Limit: maxRecord, Settle: opts})
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return Record{}, nil, corrupt(key, "it is larger than %d bytes", maxRecord)
	case err != nil:
		return Record{}, nil, err
	}
	rec, err := decode(key, epoch, body, info)
	return rec, age(info), err
}

// age is how old a version is by the store's clock alone, or nil if the store does
// not tell. The store may have rounded both times.
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

// swap writes rec over version old. Clean says that no copy of the write can land
// later.
func (f *files) swap(ctx context.Context, rec Record, old store.Version) (v store.Version, clean bool, err error) {
	body, err := rec.encode()
	if err != nil {
		return "", false, err
	}
	return f.swapBody(ctx, layout.LockKey(f.prefix, rec.Epoch), body, old, nil)
}

// swapBody calls retrying, if not nil, with each failure that it retries.
func (f *files) swapBody(ctx context.Context, key string, body []byte, old store.Version, retrying func(error)) (store.Version, bool, error) {
	var clean bool
	settle := f.settle(0)
	if retrying != nil {
		settle.Retrying = retrying
	}
	// guard:swap. Each write of an existing lock is conditional on the object version that its sender
	// last saw.
	//
	//mutant:replace info, err := store.Swap(ctx, f.st, key, body, old, &store.WriteOptions{Settle: settle, Clean: &clean}) => info, err := f.st.Put(ctx, key, body, nil); clean = true
	info, err := store.Swap(ctx, f.st, key, body, old, &store.WriteOptions{Settle: settle, Clean: &clean})
	return info.Version, clean, err
}

func (f *files) create(ctx context.Context, rec Record) (store.Version, error) {
	body, err := rec.encode()
	if err != nil {
		return "", err
	}
	// guard:create. A lock is created only if its key is absent, so each epoch has one winner.
	//
	//mutant:replace store.Create(ctx, f.st, layout.LockKey(f.prefix, rec.Epoch), body, &store.WriteOptions{Settle: f.settle(0)}) => f.st.Put(ctx, layout.LockKey(f.prefix, rec.Epoch), body, nil)
	info, err := store.Create(ctx, f.st, layout.LockKey(f.prefix, rec.Epoch), body, &store.WriteOptions{Settle: f.settle(0)})
	return info.Version, err
}
