package leader_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/document"
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

// One object does not end an election, whatever number it has: one that no election comes to is no
// lock, one that names such a number can be replaced, and of the last number the error says what to do.
//
// guard:great-epoch. Without this check: a faulty program creates lock/09223372036854775805.json, which
// is expired; leaders win the two epochs after it, and seal the log with them; then no number is left;
// nobody can ever lead again, since the log refuses lower epochs.
func TestGreatEpochs(t *testing.T) {
	const highest = 1<<62 + 1<<40
	lock := func(epoch, next uint64) (string, string) {
		key := "lock/" + layout.FormatNumber(epoch) + ".json"
		body := fmt.Sprintf(`{"format": 1, "epoch": %d, "state": "expired", "expired": true, "nonce": "0123456789abcdef0123456789abcdef", "validity_ms": 9, "renew_ms": 9, "next": %d}`, epoch, next)
		return key, string(document.Sum(key, []byte(body)))
	}
	inWorld(t, func(w *world) {
		put := func(epoch, next uint64) string {
			key, body := lock(epoch, next)
			if _, err := w.mem.Put(w.Context(), key, []byte(body), nil); err != nil {
				w.Fatal(err)
			}
			return key
		}
		w.resign(w.campaign(w.node("a")))
		var far []string
		want := fence.Epoch(1)
		// One object each, and then all of them together.
		for _, epoch := range []uint64{highest + 1, 1<<63 - 3, 1<<63 - 2, 1<<63 - 1, 1 << 63, math.MaxUint64} {
			far = append(far, put(epoch, 0))
			logged, lines := observer.New(zap.WarnLevel)
			term := w.campaign(w.node("a", func(o *leader.Options) { o.Logger = zap.New(logged) }))
			if want++; term.Epoch() != want {
				w.Errorf("epoch %v beside what is no lock, want %v", term.Epoch(), want)
			}
			w.resign(term)
			if n := lines.FilterMessageSnippet("no lock").Len(); n != 1 {
				w.Errorf("%d lines say that %d is no lock", n, epoch)
			}
		}
		w.prune(leader.PruneOptions{Keep: 1, For: 1})
		for _, key := range far {
			if _, err := w.mem.Get(w.Context(), key, nil); err != nil {
				w.Errorf("what is no lock was pruned: %v", err)
			}
		}

		want++
		bad := put(uint64(want), 1<<62+1)
		b := w.node("b")
		if _, err := b.Campaign(w.Context()); !errors.Is(err, leader.ErrCorrupt) || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "StepDown with Force") {
			w.Errorf("a lock that names a great epoch: %v", err)
		}
		if _, err := b.StepDown(w.Context(), &leader.StepDownOptions{Force: true, Immediate: true}); err != nil {
			w.Error(err)
		}
		term := w.campaign(b)
		if want++; term.Epoch() != want {
			w.Errorf("epoch %d", term.Epoch())
		}
		w.resign(term)

		last := put(highest, 0)
		if _, err := w.node("c").Campaign(w.Context()); !errors.Is(err, leader.ErrInconsistent) || !strings.Contains(err.Error(), "delete it") || !strings.Contains(err.Error(), fmt.Sprint(uint64(highest))) {
			w.Errorf("the last lock: %v", err)
		}
		if err := w.mem.Delete(w.Context(), last); err != nil {
			w.Fatal(err)
		}
		term = w.campaign(w.node("c"))
		if want++; term.Epoch() != want {
			w.Errorf("epoch %d", term.Epoch())
		}
		w.resign(term)
	})
	for least, ok := range map[fence.Epoch]bool{1 << 62: true, 1<<62 + 1: false, math.MaxUint64: false} {
		err := (&leader.Options{MinEpoch: least}).Validate()
		if ok != (err == nil) || err != nil && (!errors.Is(err, leader.ErrOptions) || !strings.Contains(err.Error(), "no room")) {
			t.Errorf("MinEpoch %d: %v", least, err)
		}
	}
}
