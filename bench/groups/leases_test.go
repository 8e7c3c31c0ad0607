package groups

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// sources says where the cadences of rivals are from.
const sources = "Two goals have room for what chance adds. A worker that does not organise lists once a minute, and waits a little longer each time, so in ten minutes it lists 9 or 10 times; the goal is 1.2 a minute. " +
	"One assignment in each Renew is allowed, and one more at the beginning and at the end.\n\n" +
	"The cadence of the Kinesis client is that of version 2: it renews each lease every 10 s / 3 − 25 ms, and looks for leases to take every 20.05 s " +
	"([DynamoDBLeaseCoordinator](https://github.com/awslabs/amazon-kinesis-client/blob/0b267037ea54965890bf5ce1d611760a083d61e8/amazon-kinesis-client/src/main/java/software/amazon/kinesis/leases/dynamodb/DynamoDBLeaseCoordinator.java)), " +
	"with the defaults failoverTimeMillis = 10,000, epsilonMillis = 25 and 20 threads that renew " +
	"([LeaseManagementConfig](https://github.com/awslabs/amazon-kinesis-client/blob/06c716ccea670f53da1cce112b5e9b5aa5ae00cb/amazon-kinesis-client/src/main/java/software/amazon/kinesis/leases/LeaseManagementConfig.java)). " +
	"The cadence of Azure's event processor is that of its libraries for Go and JavaScript: it lists, renews and claims every 10 s, and an ownership expires after 60 s " +
	"([Go](https://github.com/Azure/azure-sdk-for-go/blob/02a83bd94a8811cc67281f98e89d4c1d333a7bdd/sdk/messaging/azeventhubs/processor.go), which adds −20 to +30 % at random, left out here; " +
	"[JavaScript](https://learn.microsoft.com/en-us/javascript/api/@azure/event-hubs/loadbalancingoptions)). " +
	"The library for .NET has 30 s and 2 minutes ([EventProcessorOptions](https://learn.microsoft.com/en-us/dotnet/api/azure.messaging.eventhubs.primitives.eventprocessoroptions.partitionownershipexpirationinterval)): " +
	"a third of the requests, and partitions are without an owner twice as long. Only when these libraries write and look is measured, on an object store, not how they balance."

// rival shares partitions with a lease for each.
type rival struct {
	name     string
	validity time.Duration
	run      func(ctx context.Context, x *worker)
}

// The cadences are the defaults of these libraries, on the requests that they need on an object
// store: a conditional write to take or to renew a lease, and a listing to see all. The real ones keep
// leases in DynamoDB and in the metadata of blobs. Only when they write and look is measured, not
// how they balance.
var rivals = []rival{
	{"a lease for each partition, package leader", validity, electAll},
	// The Kinesis client, version 2: failoverTimeMillis is 10 s. Leases are renewed each third of that, less
	// 25 ms, and the whole table is scanned each 2 × (10 s + 25 ms). A lease that has not changed for
	// 10 s may be taken.
	{"the cadence of the Kinesis client", 10 * time.Second, func(ctx context.Context, x *worker) {
		leases(ctx, x, 10*time.Second, 10*time.Second/3-25*time.Millisecond, 2*(10*time.Second+25*time.Millisecond))
	}},
	// Azure's event processor, for Go and JavaScript: each 10 s it lists all ownerships, renews its own, and
	// claims. An ownership that was not changed for 60 s may be claimed.
	{"the cadence of Azure's event processor", time.Minute, func(ctx context.Context, x *worker) {
		leases(ctx, x, time.Minute, 10*time.Second, 10*time.Second)
	}},
}

// electAll is a candidate of an election for each partition.
func electAll(ctx context.Context, x *worker) {
	w := x.w
	done := make(chan struct{})
	for p := range w.partitions {
		go func() {
			defer func() { done <- struct{}{} }()
			opts := &leader.Options{Identity: x.name, Validity: validity, Clock: clock.Go(), NoPrune: true}
			e, err := leader.New(x.st, fmt.Sprintf("lease/%06d/", p), opts)
			if err != nil {
				w.Error(err)
				return
			}
			for ctx.Err() == nil && !x.st.Crashed() {
				_ = e.Run(ctx, func(ctx context.Context, _ *leader.Term) error {
					x.opens(p)
					defer x.closes(p)
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}
		}()
	}
	for range w.partitions {
		<-done
	}
}

// lease is what a worker knows of one.
type lease struct {
	version store.Version
	seen    time.Time // when the version was first seen
	mine    bool
}

// leases takes and renews leases, one object for each partition, with a cadence.
func leases(ctx context.Context, x *worker, expiry, renew, scan time.Duration) {
	w := x.w
	known := make([]lease, w.partitions)
	// Twenty requests at once, as the Kinesis client has threads for renewals.
	write := func(ps []int, then func(p int, ok bool)) {
		var g errgroup.Group
		g.SetLimit(20)
		for _, p := range ps {
			g.Go(func() error {
				on := store.IfAbsent()
				if known[p].version != "" {
					on = store.IfMatch(known[p].version)
				}
				info, err := x.st.Put(ctx, fmt.Sprintf("lease/%06d", p), []byte(fmt.Sprint(x.name, time.Now().UnixNano())), &store.PutOptions{If: on})
				if err == nil {
					known[p].version, known[p].seen = info.Version, time.Now()
				}
				then(p, err == nil)
				return nil
			})
		}
		_ = g.Wait()
	}
	look := func() {
		there := make([]bool, w.partitions)
		for info, err := range x.st.List(ctx, "lease/", nil) {
			if err != nil {
				return
			}
			var p int
			if _, err := fmt.Sscanf(info.Key, "lease/%d", &p); err != nil {
				continue
			}
			there[p] = true
			if known[p].version != info.Version {
				known[p].version, known[p].seen = info.Version, time.Now()
			}
		}
		mine, free := 0, []int(nil)
		for p := range known {
			switch {
			case known[p].mine:
				mine++
			case !there[p] || time.Since(known[p].seen) >= expiry:
				free = append(free, p)
			}
		}
		rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		write(free[:min(len(free), max(w.share-mine, 0))], func(p int, ok bool) {
			if known[p].mine = ok; ok {
				x.opens(p)
			}
		})
	}
	renewAll := func() {
		var mine []int
		for p := range known {
			if known[p].mine {
				mine = append(mine, p)
			}
		}
		write(mine, func(p int, ok bool) {
			if !ok && ctx.Err() == nil {
				known[p].mine = false
				x.closes(p)
			}
		})
	}
	due := func(every time.Duration) time.Time { return time.Now().Add(rand.N(every)) }
	nextScan, nextRenew := due(scan), due(renew)
	for ctx.Err() == nil && !x.st.Crashed() {
		next := nextScan
		if nextRenew.Before(next) {
			next = nextRenew
		}
		if clock.Sleep(ctx, clock.Go(), time.Until(next)) != nil {
			return
		}
		if now := time.Now(); !now.Before(nextScan) {
			look()
			nextScan = now.Add(scan)
		}
		if now := time.Now(); !now.Before(nextRenew) {
			renewAll()
			nextRenew = now.Add(renew)
		}
	}
}

// What a lease for each partition costs, and how long partitions have no owner after a crash.
func TestLeases(t *testing.T) {
	for _, r := range rivals {
		for _, n := range []int{10, size(1000, 40)} {
			inWorld(t, n, func(w *world) {
				w.share = n
				x := w.start("alone", r.run)
				w.owned(5*time.Minute, n, x)
				time.Sleep(time.Minute)
				w.forget()
				const minutes = 3
				time.Sleep(minutes * time.Minute)
				w.mu.Lock()
				c := w.requests["alone"]
				w.mu.Unlock()
				for _, kind := range []faultstore.Kind{faultstore.Put, faultstore.List, faultstore.Get} {
					add(t, result.Row{Name: fmt.Sprintf("%s: steady state, %s partitions, one worker: %ss a minute", r.name, result.Number(float64(n)), kind), Value: float64(c[kind]) / minutes, Goal: none})
				}
				w.end(x)
			})
		}
		const workers = 10
		var gaps []time.Duration
		n := size(100, 40)
		for range size(6, 1) {
			inWorld(t, n, func(w *world) {
				w.share = (n + workers - 2) / (workers - 1)
				var all []*worker
				for i := range workers {
					all = append(all, w.start(fmt.Sprint("w", i), r.run))
				}
				w.owned(10*time.Minute, n, all...)
				time.Sleep(2*time.Minute + rand.N(r.validity))
				victim := slices.MaxFunc(all, func(a, b *worker) int { return cmp.Compare(a.owns, b.owns) })
				w.forget()
				victim.crash()
				all = slices.DeleteFunc(all, func(x *worker) bool { return x == victim })
				w.owned(10*time.Minute, n, all...)
				gaps = append(gaps, w.gaps...)
				w.end(all...)
			})
		}
		rows := inValidities(fmt.Sprintf("%s: crash of one of %d workers, %d partitions, without an owner", r.name, workers, n), gaps, r.validity, none, none)
		for i := range rows {
			rows[i].Ratio, rows[i].Note = false, fmt.Sprintf("%.1f s", rows[i].Value*r.validity.Seconds())
		}
		add(t, rows...)
	}
}
