package writer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/takeover"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// Open takes over the log in st in the epoch of token, and creates the log if there is
// none. When it returns, no writer of an earlier epoch commits anything any more, wherever
// it runs and whatever it believes.
//
// A token is good for one Open. If several writers open at once, the one with the greatest
// epoch prevails. ctx bounds the opening only.
//
// Errors: [ErrOptions]; [ErrFenced] if a later epoch was opened, or this one by another
// process; those of manifest.Init, such as manifest.ErrFiles; fence.ErrCorrupt if the tail is damaged; the store's.
// Except after ErrOptions the token is spent.
func Open(ctx context.Context, st store.Store, token fence.Token, opts *Options) (*Writer, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	if !token.Valid() {
		return nil, errors.New("writer: the zero token gives no right to write; tokens come from an election, or from fence.NewToken with an epoch of at least 1")
	}
	if token.Epoch() == math.MaxUint64 {
		// Its seal would name the greatest epoch, and no later one could ever be opened.
		return nil, fmt.Errorf("writer: epoch %d leaves no room for a successor: nobody could ever open the log again; use a lower number", token.Epoch())
	}
	o := opts.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	began := o.Clock.Now()
	var read Progress
	w, err := open(ctx, st, token, o, &read)
	if err == nil {
		defer w.tasks.Done() // see start
	}
	if hook := o.Hooks.Opened; hook != nil {
		e := Opening{Epoch: token.Epoch(), Err: err, Took: o.Clock.Now().Sub(began), Read: read}
		if err == nil {
			e.Offset = w.recovered.Offset
		}
		hook(e)
	}
	return w, err
}

// open is Open with options that are checked. It counts in read what it reads of the tail.
func open(ctx context.Context, st store.Store, token fence.Token, o Options, read *Progress) (*Writer, error) {
	slots := outage.Stalled(o.Logger, st, o.Clock, "nothing is appended")
	lists := outage.Stalled(o.Logger, st, o.Clock, "the manifest is not read or written")
	log, m, err := state.Begin(ctx, st, o.Init, &state.Options{Settle: lists.Settle(o.Settle), Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	if err := o.fit(log.Format().Limits); err != nil {
		return nil, err
	}
	begin, err := takeover.Run(ctx, takeover.Config{
		Log: log, Token: token, Settle: slots.Settle(o.Settle), InFlight: o.Concurrency, Window: o.Window, Clock: o.Clock, Logger: o.Logger,
		Read: func(s *chain.Step) {
			read.add(s)
			if o.Hooks.Progress != nil {
				o.Hooks.Progress(*read)
			}
		},
	}, m)
	if err != nil {
		return nil, fmt.Errorf("writer: opening epoch %d: %w", token.Epoch(), err)
	}
	o.Logger.Info("opened", sink.Epoch(token.Epoch()), zap.Uint64("offset", begin.Offset), zap.Int("objects_read", read.Objects))
	lists.Answered()
	slots.Answered()
	return start(log, token, begin, o, slots, lists)
}
