package election

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

const validity = 15 * time.Second

// contender is an election library.
type contender struct {
	name string
	// run campaigns as who until it leads, calls work, and returns when the term is over.
	// It cancels work's context when it no longer believes that it leads. work may call
	// leave to resign.
	run func(ctx context.Context, st *faultstore.Store, who string, work func(ctx context.Context, leave func())) error
	// releases says whether it frees the lock when it resigns.
	releases bool
	// returns says that a term ends when its work returns. client-go's goes on.
	returns bool
	// released reports whether an object's new body says that there is no leader.
	released func(body []byte) bool
	// observe watches the leader until ctx ends. nil: not supported.
	observe func(ctx context.Context, st *faultstore.Store) error
}

// contenders: the first is package leader, which must reach its goals. client-go is added
// with its build tag.
var contenders = []contender{
	{
		name: "leader", run: runLeader, observe: observeLeader, releases: true, returns: true,
		released: func(body []byte) bool {
			var r struct{ Reason string }
			return json.Unmarshal(body, &r) == nil && r.Reason == "resigned"
		},
	},
}

func elector(st *faultstore.Store, who string) (*leader.Elector, error) {
	// Pruning is off: it is no part of the election, and other libraries do not have it.
	return leader.New(st, "lock", &leader.Options{Identity: who, Validity: validity, Clock: clock.Go(), NoPrune: true})
}

func runLeader(ctx context.Context, st *faultstore.Store, who string, work func(context.Context, func())) error {
	e, err := elector(st, who)
	if err != nil {
		return err
	}
	err = e.Run(ctx, func(ctx context.Context, t *leader.Term) error {
		work(ctx, func() { go func() { _ = t.Resign(ctx) }() })
		return nil
	})
	if expected := errors.Is(err, leader.ErrLost) || ctx.Err() != nil || st.Crashed(); !expected {
		return err
	}
	return nil
}

func observeLeader(ctx context.Context, st *faultstore.Store) error {
	e, err := elector(st, "observer")
	if err != nil {
		return err
	}
	for _, err := range e.Observe(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}
