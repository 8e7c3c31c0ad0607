package leader_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

func TestMinEpoch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.resign(w.campaign(w.node("a")))
		term := w.campaign(w.node("b", func(o *leader.Options) { o.MinEpoch = 1000 }))
		if term.Epoch() != 1000 {
			w.Errorf("epoch %v", term.Epoch())
		}
		if f := w.file(2); f["expired"] != true || f["next"] != 1000.0 || f["reason"] != "milestone" || f["holder"] != "b" {
			w.Errorf("the milestone is %v", f)
		}
		w.resign(term)
		term = w.campaign(w.node("c"))
		if term.Epoch() != 1001 {
			w.Errorf("epoch %v", term.Epoch())
		}
		w.resign(term)
	})
}

// Candidates differ in MinEpoch, as in a rolling deployment that sets it. Both have seen
// that lock 1 is expired. b is frozen before one of its writes, and a does not know of b's
// epochs. Still only one of them leads at a time.
func TestMinEpochDiffers(t *testing.T) {
	for name, c := range map[string]struct{ frozen, a, b int }{
		"before its milestone": {2, 2, 1000},
		"after its milestone":  {1000, 1000, 1001},
		"never":                {999, 1001, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.resign(w.campaign(w.node("x")))
				a := w.node("a")
				b := w.node("b", func(o *leader.Options) { o.MinEpoch = 1000 })
				w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Client: "b", Prefix: key(c.frozen), Fault: faultstore.Fault{Delay: 10 * time.Second}}))
				wonB := w.campaigning(b)
				time.Sleep(time.Second)
				wonA := w.campaigning(a)
				var terms []*leader.Term
				for range 2 {
					var term *leader.Term
					var want int
					select {
					case term = <-wonA:
						want = c.a
					case term = <-wonB:
						want = c.b
					}
					terms = append(terms, term)
					if int(term.Epoch()) != want {
						w.Errorf("epoch %v, want %d", term.Epoch(), want)
					}
					time.Sleep(time.Minute)
					select {
					case <-wonA:
						t.Fatal("a leads too")
					case <-wonB:
						t.Fatal("b leads too")
					default:
					}
					w.resign(term)
				}
				if terms[0].Epoch() >= terms[1].Epoch() {
					w.Errorf("epoch %v, then %v", terms[0].Epoch(), terms[1].Epoch())
				}
			})
		})
	}
}
