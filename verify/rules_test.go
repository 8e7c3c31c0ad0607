package verify_test

import (
	"context"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// ruled is a store whose bucket has rules.
type ruled struct {
	store.Store
	rules []store.Expiry
	err   error
}

func (r ruled) Expiries(_ context.Context, prefix string) (all []store.Expiry, err error) {
	for _, e := range r.rules {
		if strings.HasPrefix(prefix, e.Prefix) || strings.HasPrefix(e.Prefix, prefix) {
			all = append(all, e)
		}
	}
	return all, r.err
}

// T36: a rule that would delete objects of the log is a problem before it has
// deleted any. One for what probes leave, or for what is not the log's, is none.
func TestT36_RulesAreSeen(t *testing.T) {
	l, _ := tables(t)
	for prefix, bad := range map[string]bool{
		"": true, "da": true, "data/": true, "data/00000000000000000001/": true, "lock/": true, "f": true, "format.json": true, "segment/": true,
		"tmp/": false, "t": false, "backup/": false, "dataset/": false, "format.json.old": false,
	} {
		r, err := verify.Run(t.Context(), ruled{Store: l.Mem, rules: []store.Expiry{{Rule: "tidy", Prefix: prefix, What: "deletes objects after 30 days"}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.OK() == bad {
			t.Errorf("%q: %v", prefix, r.Problems)
		}
		if bad && !strings.Contains(r.Problems[0].String(), `rule "tidy" deletes objects after 30 days`) {
			t.Errorf("%q: %v", prefix, r.Problems)
		}
	}
	r, err := verify.Run(t.Context(), ruled{Store: l.Mem, err: &store.Error{Op: "lifecycle", Kind: store.ErrDenied}}, nil)
	if err != nil || !r.OK() || len(r.Notes) == 0 {
		t.Errorf("denied: %v, %+v", err, r)
	}
}
