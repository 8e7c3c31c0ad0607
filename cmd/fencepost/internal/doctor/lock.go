package doctor

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

// ExamineLock checks a place that has a lock and no log, as where fencepost exec runs. It changes
// nothing. The error is ctx's.
func ExamineLock(ctx context.Context, st store.Store, opts *Options) ([]Finding, error) {
	x := begin(st, opts)
	x.add("log", OK, "", "none: there is only a lock, as fencepost exec makes one")
	return x.run(ctx, x.lockRules, x.lockProbed, x.holder, x.takeovers, x.oldLocks)
}

// lockRules looks for lifecycle rules of the bucket that delete locks.
func (x *examination) lockRules(ctx context.Context) {
	const check = "lifecycle rules"
	var all []store.Expiry
	err := errors.ErrUnsupported
	if teller, ok := store.As[store.ExpiryTeller](x.st); ok {
		err = store.Retry(ctx, nil, func(ctx context.Context) (err error) {
			all, err = teller.Expiries(ctx, inspect.Lock.Prefix())
			return err
		})
	}
	if err != nil {
		x.noRules(check, err, "objects below "+inspect.Lock.Prefix())
		return
	}
	for _, e := range all {
		x.add(check, Problem, limitRule,
			"the bucket's lifecycle rule %q %s. If it deletes the newest lock, epochs begin at 1 again, and places that have seen a higher one refuse every leader", e.Rule, e.What)
	}
	if len(all) == 0 {
		x.add(check, OK, "", "none deletes locks")
	}
}

// lockProbed says what is known of the store's promises, and of its clock.
func (x *examination) lockProbed(ctx context.Context) {
	if x.Deep {
		x.probed(ctx)
		return
	}
	x.add("store", Unseen, "", unwritten+". exec probes a new place before its first command, and a program that leads alone does not; --deep probes it")
}

// holder says who leads.
func (x *examination) holder(ctx context.Context) {
	l, ok := x.lock(ctx)
	if !ok {
		return
	}
	l = x.renewed(ctx, inspect.Lock, l)
	x.leads(l, "start exec, or find out why none of those that wait takes over")
	if l.Leads {
		x.add("lease", OK, "", "until %s unless it is renewed; validity %s", when(l.Until), l.Lasts())
	}
}

// lock reads the newest lock. It returns false if that cannot be read.
func (x *examination) lock(ctx context.Context) (survey.Term, bool) {
	l, err := survey.TakeLock(ctx, x.st)
	if err != nil {
		x.badLock("leader", inspect.Lock, err)
		return survey.Term{}, false
	}
	return l.Leader, true
}

// oldLocks looks for locks that should have been deleted.
func (x *examination) oldLocks(ctx context.Context) {
	n := 0
	for info, err := range survey.Listing(ctx, x.st, inspect.Lock.Prefix(), nil, func() { n = 0 }) {
		if err != nil {
			x.failed("growth", err, "")
			return
		}
		if name := inspect.Parse(info.Key); name.Kind == inspect.Lock && name.Number > 0 {
			n++
		}
	}
	if n > manyLocks {
		x.add("growth", Warning, "let the leaders delete old locks (`candidate` in docs/policies.md has the rights)", "%d old locks below %s are not deleted", n, inspect.Lock.Prefix())
		return
	}
	x.add("growth", OK, "", "nothing is left that should have been deleted")
}
