package doctor

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// ExamineLock checks a place that has a lock and no log, as where fencepost exec runs. It changes
// nothing. The error is ctx's.
func ExamineLock(ctx context.Context, st store.Store, opts *Options) ([]Finding, error) {
	x := begin(st, opts)
	x.add("log", OK, "", "none: there is only a lock, as fencepost exec makes one")
	for _, step := range []func(context.Context){x.lockRules, x.lockProbed, x.holder, x.takeovers, x.oldLocks} {
		if ctx.Err() != nil {
			return x.found, context.Cause(ctx)
		}
		step(ctx)
	}
	return x.found, context.Cause(ctx)
}

// lockRules looks for lifecycle rules of the bucket that delete locks.
func (x *examination) lockRules(ctx context.Context) {
	const check = "lifecycle rules"
	teller, ok := store.As[store.ExpiryTeller](x.st)
	if !ok {
		x.add(check, OK, "", "the store tells none")
		return
	}
	var all []store.Expiry
	err := store.Retry(ctx, nil, func(ctx context.Context) (err error) {
		all, err = teller.Expiries(ctx, layout.LockPrefix)
		return err
	})
	if err != nil {
		if errors.Is(err, store.ErrDenied) {
			err = errors.New("these credentials may not read them")
		}
		x.cannot(check, err, "allow s3:GetLifecycleConfiguration, or check yourself that no rule deletes objects below "+layout.LockPrefix+" by age")
		return
	}
	for _, e := range all {
		x.add(check, Problem, "remove the rule, or limit it to other prefixes",
			"the bucket's lifecycle rule %q %s. If it deletes the newest lock, epochs begin at 1 again, and places that have seen a higher one refuse every leader", e.Rule, e.What)
	}
	if len(all) == 0 {
		x.add(check, OK, "", "none that the store tells deletes locks")
	}
}

// lockProbed says what is known of the store's promises, and of its clock.
func (x *examination) lockProbed(ctx context.Context) {
	if x.Deep {
		x.probed(ctx)
		return
	}
	x.add("store", OK, "", "not probed now; exec does that before its first command, and --deep does it again")
}

// holder says who leads.
func (x *examination) holder(ctx context.Context) {
	l, err := survey.TakeLock(ctx, x.st)
	if err != nil {
		if ctx.Err() == nil {
			x.add("leader", Problem, advice(err, "run `fencepost history`, which says what is wrong with which lock"), "%v", err)
		}
		return
	}
	x.leads(l.Leader, "start exec, or find out why none of those that wait takes over")
	if l.Leader.Leads {
		x.add("lease", OK, "", "until %s unless it is renewed; validity %s", when(l.Leader.Until), l.Leader.Validity)
	}
}

// oldLocks looks for locks that should have been deleted.
func (x *examination) oldLocks(ctx context.Context) {
	n := 0
	for info, err := range store.ListAll(ctx, x.st, layout.LockPrefix, nil, nil) {
		if err != nil {
			x.cannot("growth", err, "")
			return
		}
		if _, ok := layout.ParseLockKey(layout.LockPrefix, info.Key); ok {
			n++
		}
	}
	if n > manyLocks {
		x.add("growth", Warning, "let the leaders delete old locks (`fencepost policy --role candidate` has the rights)", "%d old locks below %s are not deleted", n, layout.LockPrefix)
		return
	}
	x.add("growth", OK, "", "nothing is left that should have been deleted")
}
