package election

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

const validity = 15 * time.Second

// contender is an election library.
type contender struct {
	name string
	// run campaigns as who until it leads, calls work, and returns when the term is
	// over. The context given to work ends when who does not believe any more that
	// it leads. Calling leave gives the term up in good order.
	run func(ctx context.Context, st *faultstore.Store, who string, work func(ctx context.Context, leave func())) error
	// releases tells that it frees the lock when it leaves.
	releases bool
	// released tells whether an object's new body says that nobody leads.
	released func(body []byte) bool
	// observe watches who leads until ctx ends; nil if that cannot be done.
	observe func(ctx context.Context, st *faultstore.Store) error
}

// contenders: the first is ours, whose goals must be reached; client-go comes with its tag.
var contenders = []contender{
	{
		name: "leader", run: runLeader, observe: observeLeader, releases: true,
		released: func(body []byte) bool {
			var r struct{ Reason string }
			return json.Unmarshal(body, &r) == nil && (r.Reason == "resigned" || r.Reason == "handed over")
		},
	},
}

func elector(st *faultstore.Store, who string) (*leader.Elector, error) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(who))
	// Pruning is off since it is no part of the election, and others do not have it.
	return leader.New(st, "lock", &leader.Options{Identity: who, Validity: validity, Clock: clock.Go(), Seed: h.Sum64(), NoPrune: true})
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
