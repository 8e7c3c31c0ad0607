package group_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/ext/group"
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
	// Output: <nil>
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

// Run this program on any number of machines. They share the partitions, and each partition
// has one writer at a time.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	st := memstore.New(nil)
	err := group.Run(ctx, st, &group.RunOptions{Group: &group.Options{Partitions: 1}},
		func(ctx context.Context, s *group.Session) error {
			// This process owns partition s.Partition.Number() until ctx ends. s is the open writer of its log.
			if _, err := s.Append(ctx, [][]byte{[]byte("hello")}); err != nil {
				return err
			}
			fmt.Println("partition", s.Partition.Number(), "in epoch", s.Epoch())
			stop()
			<-ctx.Done()
			return context.Cause(ctx)
		})
	fmt.Println(err)
	// Output:
	// partition 0 in epoch 65536
	// <nil>
}
