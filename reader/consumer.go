package reader

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
)

// Consumer is a named, durable position in the log: the offset of the next record to handle.
// It is a register (see package register) in the log's own prefix. It is safe for concurrent use.
type Consumer struct {
	reg *register.Register
	log fence.ID
}

// Consumer opens the position of that name with the token of an election, and takes it over from whoever
// has it. From then on the earlier holder's Commit fails with a fence.FencedError, however late it
// arrives, and a consumer of an earlier epoch cannot take the position back. A name has 1 to 100
// letters, digits, dots, hyphens and underscores, and begins with a letter or digit.
//
// Errors: [ErrOptions] for a bad name and the zero token; a fence.FencedError if a later epoch has the position;
// [ErrCorrupt] also if it is that of another log; manifest.ErrBackup; those of register.Open.
func (r *Reader) Consumer(ctx context.Context, name string, token fence.Token) (*Consumer, error) {
	if !token.Valid() {
		return nil, fmt.Errorf("%w: the token of epoch 0 gives no right; TakeConsumer needs none, and the latest call has the position", ErrOptions)
	}
	return r.consumer(name, func(st store.Store, key string, opts *register.Options) (*register.Register, error) {
		return register.Open(ctx, st, key, token, opts)
	})
}

// TakeConsumer is [Reader.Consumer] without an election: the latest call has the position.
func (r *Reader) TakeConsumer(ctx context.Context, name string) (*Consumer, error) {
	return r.consumer(name, func(st store.Store, key string, opts *register.Options) (*register.Register, error) {
		return register.Take(ctx, st, key, opts)
	})
}

func (r *Reader) consumer(name string, open func(store.Store, string, *register.Options) (*register.Register, error)) (*Consumer, error) {
	key, ok := layout.ConsumerKey(name)
	if !ok {
		return nil, fmt.Errorf("%w: the consumer's name is %.120q: it needs 1 to 100 letters, digits, dots, hyphens and underscores, and begins with a letter or digit", ErrOptions, name)
	}
	if err := r.log.Writable(); err != nil {
		return nil, err
	}
	reg, err := open(ownNames{r.log.Store()}, key, &register.Options{Settle: r.opts.Settle, Clock: r.opts.Clock})
	if err != nil {
		return nil, err
	}
	c := &Consumer{reg: reg, log: r.log.Format().Log}
	if _, _, err := c.parse(reg.Value()); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, key, err)
	}
	return c, nil
}

// ownNames is the log's store, in which a consumer's register has a name of the log's own.
type ownNames struct{ store.Store }

func (s ownNames) Unwrap() store.Store { return s.Store }

// OpensOwn implements [layout.Own].
func (ownNames) OpensOwn(layout.Pass) {}

// Next is the offset of the next record to handle, as it was committed last. It reports false if
// nothing was ever committed: begin at 0, or at [Oldest].
func (c *Consumer) Next() (next uint64, ok bool) {
	next, ok, _ = c.parse(c.reg.Value()) // it was read before, or written by Commit
	return next, ok
}

// Epoch is the epoch in which the position was taken over.
func (c *Consumer) Epoch() fence.Epoch { return c.reg.Epoch() }

// Commit notes that all records before next are handled. Call it after their effects: then
// each record is handled at least once. If the effects are in another log of this project, keep the
// offset as that writer's cursor instead, and each is handled exactly once: see the example
// BetweenLogs.
//
// It costs one PUT. Errors are those of register.Set: a fence.FencedError if another consumer of
// this name has taken over; store.ErrUnknown if nobody can tell.
func (c *Consumer) Commit(ctx context.Context, next uint64) error {
	return c.reg.Set(ctx, fmt.Appendf(nil, "%s %d", c.log, next))
}

// parse reads a position: the identity of the log, and the offset.
func (c *Consumer) parse(value []byte) (next uint64, ok bool, err error) {
	if value == nil {
		return 0, false, nil
	}
	log, offset, _ := strings.Cut(string(value), " ")
	next, err = strconv.ParseUint(offset, 10, 64)
	switch {
	case err != nil:
		return 0, false, errors.New("it is not the position of a consumer")
	case log != c.log.String():
		return 0, false, fmt.Errorf("it is the position in another log, %s; this log is %s. Delete the object if no consumer uses it any more", log, c.log)
	}
	return next, true, nil
}
