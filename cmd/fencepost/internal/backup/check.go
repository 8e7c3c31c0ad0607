package backup

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// manyFindings is how many damaged objects one reading of a copy tells, to be copied again before the next one.
const manyFindings = 1 << 20

// check verifies a copy, whose files are in a second store unless that is nil, and whether its chain
// ends where it should.
func check(ctx context.Context, st, files store.Store, chain *ending, report *Report, o *Options) error {
	if o.NoVerify {
		return nil
	}
	var mu sync.Mutex
	var last verify.Progress
	tell := func() {
		if last.Stage != "" {
			o.Progress("verifying "+last.Stage, last.Done, last.Total)
		}
	}
	end := beat(func() { mu.Lock(); defer mu.Unlock(); tell() })
	v, err := verify.Run(ctx, st, &verify.Options{Copy: true, Files: files, MaxFindings: manyFindings, Hooks: verify.Hooks{Progress: func(p verify.Progress) {
		mu.Lock()
		defer mu.Unlock()
		last = p
		tell()
	}}})
	end()
	if err != nil {
		return err
	}
	if !v.OK() {
		damage := slices.DeleteFunc(slices.Clone(v.Problems), func(f verify.Finding) bool { return f.Key == "" })
		if len(damage) == 0 { // such as a rule that was set meanwhile
			return fmt.Errorf("the copy in %s cannot be relied on: %v", st.Traits().Name, v.Problems[0])
		}
		bad := &damagedError{err: fmt.Errorf("%w: the copy in %s is not whole: %v", fence.ErrCorrupt, st.Traits().Name, damage[0])}
		for _, p := range damage {
			bad.keys = append(bad.keys, p.Key)
		}
		return bad
	}
	if err := chain.check(ending{v.End, v.Tail}, st, "nothing there can be relied on"); err != nil {
		return err
	}
	report.Verified, report.First, report.End = true, v.First, v.End
	return nil
}
