package leader_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
)

// What a leader announces stands in its lock for the term, and in no lock that nobody held.
func TestAnnounce(t *testing.T) {
	inWorld(t, func(w *world) {
		term := w.campaign(w.node("a", func(o *leader.Options) { o.Announce, o.MinEpoch = "tcp://here", 7 }))
		time.Sleep(time.Minute)
		rec, err := w.node("b").Leader(w.Context())
		if err != nil || rec.Announce != "tcp://here" || rec.Renewals == 0 || !rec.Leads() {
			w.Errorf("%+v, %v", rec, err)
		}
		w.resign(term)
		term = w.campaign(w.node("c"))
		if _, says := w.file(8)["announce"]; says {
			w.Errorf("%v", w.file(8))
		}
		w.resign(term)
		for rec, err := range w.node("b").History(w.Context()) {
			if err != nil || rec.Next > 0 && rec.Announce != "" {
				w.Errorf("%+v, %v", rec, err)
			}
		}
	})
}
