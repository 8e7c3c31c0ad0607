package group_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// A worker is frozen for a month while a heartbeat and an append are in flight, and if it organises also an
// assignment. Others go on with its logs, N is raised, and all others are replaced. Then it wakes, and its
// writes land: no log has a record of its last session that was not there, and it joins again.
func TestRunGroupAwayForAMonth(t *testing.T) {
	const month = 30 * 24 * time.Hour
	const heartbeat, assignment = "group/member/", "group/assign/"
	tried := test.Square(2, 3, 2)
	for i, c := range []struct {
		who  string
		also []string // in flight beside its append
	}{
		{"a", []string{heartbeat, assignment}}, // it organises
		{"b", []string{heartbeat}},
	} {
		who, also := c.who, c.also
		for j, landing := range []fixture.Landing{fixture.Answered, fixture.Applied, fixture.Late} {
			for k, how := range []string{"process", "machine"} {
				if !tried(i, j, k) {
					continue
				}
				stops := how == "machine"
				t.Run(fmt.Sprintf("%s/%s/%s", who, landing, how), func(t *testing.T) {
					inFleet(t, 6, func(f *fleet) {
						a := &fixture.Absentee{Client: who, Stops: stops, Landing: landing, At: "partition/", Also: also}
						var mu sync.Mutex
						var ends []error
						f.change = func(o *group.RunOptions) {
							if o.Group.Identity != who {
								return
							}
							o.Group.Partitions = 0
							o.Group.Clock, o.Writer.Clock, o.Writer.Init.Clock = &a.Clock, &a.Clock, &a.Clock
							o.Group.Hooks.Ended = func(e group.End) {
								mu.Lock()
								defer mu.Unlock()
								ends = append(ends, e.Cause)
							}
						}
						if err := group.Create(f.Context(), f.mem, f.options("").Group); err != nil {
							f.Fatal(err)
						}
						hands := map[string]*hand{}
						for _, name := range []string{"a", "b", "c"} {
							hands[name] = f.join(name)
							time.Sleep(20 * time.Second)
						}
						a.Store = hands[who].st
						f.faulty.SetHook(a.Hook())
						if len(also) > 1 {
							hands["c"].cancel(errStop)
						}
						a.Await(f)
						time.Sleep(time.Minute)
						f.n = 8
						f.grow()
						for i := range 4 {
							h := f.join(fmt.Sprint("guest", i))
							time.Sleep(20 * time.Second)
							f.stop(h)
						}
						for name, h := range hands {
							if name != who {
								f.stop(h)
							}
						}
						time.Sleep(month)
						e, g := f.join("e"), f.join("f")
						time.Sleep(30 * time.Second)
						if got := f.owners(); !slices.Equal(got, []string{"e", "f"}) {
							f.Fatalf("%v own partitions", got)
						}

						before := f.logs()
						a.Return(f)
						time.Sleep(10 * time.Second)
						mu.Lock()
						want := group.ErrExpired
						if stops {
							want = group.ErrDeposed
						}
						if len(ends) != 1 || !errors.Is(ends[0], want) {
							f.Errorf("it ended with %v, want %v", ends, want)
						}
						mu.Unlock()
						time.Sleep(30 * time.Second)
						if got := f.owners(); !slices.Equal(got, slices.Sorted(slices.Values([]string{who, "e", "f"}))) {
							f.Errorf("%v own partitions", got)
						}
						f.stop(e)
						f.stop(g)
						f.stop(hands[who])
						for _, acked := range f.acked { // one of its records may be acknowledged a month late
							slices.SortStableFunc(acked, func(x, y string) int { return cmp.Compare(epoch(x), epoch(y)) })
						}
						f.sound()
						for p, all := range f.logs() {
							if n := len(before[p]); len(all) < n || !slices.Equal(all[:n], before[p]) {
								f.Errorf("the history of partition %d has changed", p)
							}
							last := 0
							for i, value := range all {
								if epoch(value) < last {
									f.Errorf("partition %d: record %d is %q after epoch %d", p, i, value, last)
								}
								last = epoch(value)
							}
						}
					})
				})
			}
		}
	}
}

// logs are the records of all partitions.
func (f *fleet) logs() (logs [][]string) {
	f.Helper()
	for p := range f.n {
		st, err := group.PartitionStore(f.mem, p)
		if err != nil {
			f.Fatal(err)
		}
		all, err := logtest.Read(st, 0, nil)
		if err != nil {
			f.Fatalf("partition %d: %v", p, err)
		}
		logs = append(logs, all)
	}
	return logs
}

// epoch is that of a record.
func epoch(value string) (n int) {
	_, _ = fmt.Sscanf(value, "%d/%d/", new(int), &n)
	return n
}
