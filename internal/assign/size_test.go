package assign

import (
	"math/rand/v2"
	"testing"
)

func TestSize(t *testing.T) {
	for _, c := range []struct {
		name             string
		members          int
		rounds, requests int
	}{
		{"100 members", 100, 600, 0},
		{"100 members, requests", 100, 600, 100},
		{"1000 members", 1000, 600, 0},
		{"1000 members, requests", 1000, 600, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGroup(t, MaxPartitions)
			rng := rand.New(rand.NewPCG(1, 2))
			g.join(c.members, 1)
			g.next()
			t.Logf("fresh: %d", len(g.a.Encode()))
			most := 0
			for i := range c.rounds {
				g.churn(rng, c.members, c.requests)
				if i%100 == 99 {
					most = max(most, len(g.a.Encode()))
					t.Logf("round %d: %d, entries %d, members %d", i, len(g.a.Encode()), len(g.a.entries), len(g.a.members))
				}
			}
		})
	}
}
