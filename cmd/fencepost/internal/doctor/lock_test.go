package doctor

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// TestLock: where there is a lock and no log, what is wrong is found, and nothing else.
func TestLock(t *testing.T) {
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	for name, c := range map[string]struct {
		harm  func(p *patient)
		check string
		level Level
		says  string
	}{
		"nothing": {func(*patient) {}, "", OK, ""},
		"a rule of the bucket": {func(p *patient) {
			p.rules = []store.Expiry{{Rule: "tidy", What: "deletes objects after 30 days"}}
		}, "lifecycle rules", Problem, "epochs begin at 1 again"},
		"no right to see rules": {func(p *patient) {
			p.denied = &store.Error{Op: "get", Kind: store.ErrDenied}
		}, "lifecycle rules", Warning, "s3:GetLifecycleConfiguration"},
		"a crash":        {(*patient).crash, "leader", Warning, "start exec"},
		"a corrupt lock": {(*patient).corrupt, "leader", Problem, "step-down --force"},
		"leaders that depose each other": {func(p *patient) {
			p.depose()
			p.alone()
		}, "takeovers", Warning, "make the validity longer"},
		"a leader that was deposed":       {(*patient).step, "leader", Warning, "start exec"},
		"locks that nobody has deleted":   {func(p *patient) { p.fill(manyLocks) }, "growth", Warning, "docs/policies.md"},
		"as many locks as are kept often": {func(p *patient) { p.fill(manyLocks - 100) }, "", OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, deep := range []bool{false, true} {
					p := &patient{Store: memstore.New(nil), t: t}
					p.alone()
					c.harm(p)
					found, err := ExamineLock(t.Context(), p, &Options{Deep: deep, Probe: quick})
					if err != nil {
						t.Fatal(err)
					}
					if c.check != "" {
						wants(t, found, c.check, c.level, c.says)
						continue
					}
					for _, f := range found {
						if bad(f) {
							t.Errorf("%+v", f)
						}
					}
					if len(found) < 6 {
						t.Errorf("only %d checks", len(found))
					}
				}
			})
		})
	}
}

// alone leads once without a log, in epoch 10,000.
func (p *patient) alone() {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, &leader.Options{MinEpoch: 10_000})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := e.Run(p.t.Context(), func(context.Context, *leader.Term) error { return nil }); err != nil {
		p.t.Fatal(err)
	}
}

// fill adds old locks. Nobody reads what is in them.
func (p *patient) fill(n int) {
	for i := range n {
		fixture.Put(p.t, p, layout.LockKey(layout.LockPrefix, fence.Epoch(i+1)), []byte("{"))
	}
}
