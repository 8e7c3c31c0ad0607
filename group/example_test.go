package group_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/store/memstore"
)

// A worker runs until it has seen all partitions, and then leaves.
func ExampleJoin() {
	ctx, done := context.WithCancel(context.Background())
	st := memstore.New(nil)
	g, err := group.Join(ctx, st, &group.Options{Partitions: 3, Data: "http://10.0.0.7:8080"})
	if err != nil {
		panic(err)
	}
	var opened sync.WaitGroup
	opened.Add(3)
	go func() {
		opened.Wait()
		done()
	}()
	err = g.Run(ctx, func(ctx context.Context, p *group.Partition) error {
		// Send p.Token() with each write, to a place that checks it.
		if err := p.Check(time.Second); err != nil {
			return err
		}
		opened.Done()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output: context canceled
}

// Observe yields the status at once, and again after each change.
func ExampleObserve() {
	ctx := context.Background()
	st := memstore.New(nil)
	g, err := group.Join(ctx, st, &group.Options{Partitions: 3, Identity: "a"})
	if err != nil {
		panic(err)
	}
	for s, err := range group.Observe(ctx, st, nil) {
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Partitions, "partitions,", len(s.Members), "member:", s.Members[0].Identity)
		break
	}
	if err := g.Leave(ctx); err != nil {
		panic(err)
	}
	// Output: 3 partitions, 1 member: a
}
