package leader_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// On a store whose versions are hashes of the contents, copies of a deposed leader's
// requests land late in the hole of its pruned lock: a copy of its create, one of its
// confirming swap if that was sent twice, and last its heartbeat. The heartbeat must
// not find a version that it knows.
func TestLateCopiesOfAWinBringNothingBack(t *testing.T) {
	for name, confirm := range map[string]faultstore.Fault{
		"create": {},
		"create and confirm": {
			Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{},
		},
		"create and confirm, reply lost": {
			Err: faultstore.ErrTimeout, Late: &faultstore.Late{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, memstore.Options{ContentVersions: true}, faultstore.Options{}, func(w *world) {
				a, b := w.node("a"), w.node("b")
				late := &faultstore.Late{}
				w.faulty.SetHook(faultstore.Script(
					faultstore.Rule{Kind: faultstore.Put, Client: "a", Fault: faultstore.Fault{Late: late}},
					faultstore.Rule{Kind: faultstore.Put, Client: "a", Skip: 1, Fault: confirm},
				))
				ta := w.campaign(a)
				// All its heartbeats will land late.
				w.faulty.SetHook(faultstore.Script(faultstore.Rule{
					Kind: faultstore.Put, Client: "a", Times: -1,
					Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: late},
				}))
				tb := w.campaign(b)
				<-ta.Context().Done()
				time.Sleep(time.Second)
				if n := w.prune(leader.PruneOptions{Keep: 1}); n != 1 {
					w.Fatalf("pruned %d", n)
				}
				if n := w.faulty.Release(w.Context(), nil); n < 3 {
					w.Fatalf("only %d late requests", n)
				}
				if f := w.file(1); f["renewals"] != 0.0 {
					w.Errorf("a deposed leader's heartbeat was applied: %v", f)
				}
				w.resign(tb)
			})
		})
	}
}
