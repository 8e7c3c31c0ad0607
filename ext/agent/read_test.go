package agent

import (
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/ext/agent/agentpb"
)

// TestSlowReader: a client that reads slowly does not let the agent read a log of large records into memory. All records come.
func TestSlowReader(t *testing.T) {
	const records, size = 100, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		b := newBasket()
		ahead := 0
		go func() {
			for i := range records {
				b.put(&agentpb.Record{Offset: uint64(i), Value: make([]byte, size)})
				ahead++
			}
			b.end(nil)
		}()
		for next := 0; ; {
			synctest.Wait()
			if ahead > next+batchBytes/size+1 {
				t.Fatalf("%d records are in memory", ahead-next)
			}
			batch, err := b.take()
			if len(batch) == 0 {
				if err != nil || next != records {
					t.Errorf("%d records, %v", next, err)
				}
				return
			}
			for _, r := range batch {
				if r.GetOffset() != uint64(next) {
					t.Fatalf("record %d after %d", r.GetOffset(), next)
				}
				next++
			}
		}
	})
}
