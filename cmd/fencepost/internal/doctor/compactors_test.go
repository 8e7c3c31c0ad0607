package doctor

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// append appends with a token that no election has given, as that of a partition.
func (p *patient) append(epoch fence.Epoch) {
	p.t.Helper()
	w, err := writer.Open(p.t.Context(), p, fence.NewToken(epoch), nil)
	if err == nil {
		_, err = w.Append(p.t.Context(), [][]byte{[]byte("record")})
	}
	if err == nil {
		err = w.Close(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestCompactorOfPartition: the log of a partition has no election, and compactors of its own would fence those of
// the group.
func TestCompactorOfPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{Store: logtest.New(t, logtest.WithGrace(10*time.Minute), nil).Mem, t: t}
		p.append(1)
		time.Sleep(longWait + time.Minute)
		wants(t, examine(t, p, nil), "compaction", Warning, "no compactor has worked here yet")
		p.fold(3)
		inHealth(t, examine(t, p, nil))
		p.append(2)
		time.Sleep(longWait + time.Minute)
		found := examine(t, p, nil)
		wants(t, found, "compaction", Warning, "the last compactor had a token, of epoch 3")
		if f := of(found, "compaction"); !strings.Contains(f[0].Remedy, "`fencepost compact --watch --group` with the URL of the group") {
			t.Errorf("%+v", f)
		}
	})
}

// TestCompactorsOfGroup: somebody must compact the logs of the partitions, if there are any.
func TestCompactorsOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const check = "compactors"
		p := &patient{Store: memstore.New(nil), t: t}
		o := &group.Options{Partitions: 2, Probe: quickProbe, Clock: clock.Go()}
		if err := group.Create(t.Context(), p, o); err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, p, group.PartitionsPrefix+"eu.csv", []byte("of another program"))
		if f := of(examine(t, p, nil), check); len(f) != 0 {
			t.Errorf("there is no log: %+v", f)
		}
		fixture.Put(t, p, group.PartitionPrefix(1)+"/"+layout.DataKey(logtest.At(1, 1)), []byte("of the log of a partition"))
		if f := of(examine(t, p, nil), check); len(f) != 1 || f[0].Level != Warning || !strings.Contains(f[0].Remedy, "compact --watch --group") {
			t.Errorf("nobody compacts: %+v", f)
		}
		own, err := store.Sub(p, group.CompactorsPrefix)
		if err != nil {
			t.Fatal(err)
		}
		g, err := group.Join(t.Context(), own, o)
		if err != nil {
			t.Fatal(err)
		}
		if f := of(examine(t, p, nil), check); len(f) != 1 || f[0].Level != OK {
			t.Errorf("somebody compacts: %+v", f)
		}
		if err := g.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f := of(examine(t, p, nil), check); len(f) != 1 || f[0].Level != Warning {
			t.Errorf("nobody compacts any more: %+v", f)
		}
	})
}
