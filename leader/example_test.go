package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/memstore"
)

// Run is all that most programs need.
func Example() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/jobs")
	e, err := leader.New(st, "lock", &leader.Options{Identity: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(ctx, func(_ context.Context, t *leader.Term) error {
		for job := range 3 {
			if err := t.Check(time.Second); err != nil {
				return err // no longer the leader, or not for a second more
			}
			fmt.Println("job", job, "in epoch", t.Epoch())
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// job 0 in epoch 1
	// job 1 in epoch 1
	// job 2 in epoch 1
	// <nil>
}

// Campaign and Resign, as lock and unlock.
func ExampleElector_Campaign() {
	ctx := context.Background()
	e, err := leader.New(memstore.New(nil), "lock", nil)
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx) // blocks until this process leads
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-term.Context().Done(): // lost
	default:
		fmt.Println("leading epoch", term.Token().Epoch())
	}
	fmt.Println(term.Resign(ctx))
	fmt.Println(errors.Is(context.Cause(term.Context()), leader.ErrResigned))
	// Output:
	// leading epoch 1
	// <nil>
	// true
}

// A program that used client-go's leaderelection: RunOrDie becomes Run, and its
// callbacks become a hook and the work.
func Example_clientGo() {
	onStartedLeading := func(context.Context) { fmt.Println("started") }
	onStoppedLeading := func() { fmt.Println("stopped") }
	onNewLeader := func(identity string) { fmt.Println("the leader is", identity) }

	o := &leader.Options{Identity: "worker-1", Validity: 15 * time.Second} // LeaseDuration
	o.Hooks.Leader = func(r leader.Record) {
		if r.Leads() {
			onNewLeader(r.Holder)
		}
	}
	e, err := leader.New(memstore.New(nil), "lock", o)
	if err != nil {
		log.Fatal(err)
	}
	err = e.Run(context.Background(), func(ctx context.Context, _ *leader.Term) error {
		defer onStoppedLeading() // once, after the work, and before the lock is released
		onStartedLeading(ctx)
		return nil
	})
	fmt.Println(err)
	// Output:
	// the leader is worker-1
	// started
	// stopped
	// <nil>
}

// Who leads, and who has led. An elector that only reads needs no options.
func ExampleElector_History() {
	ctx := context.Background()
	st := memstore.New(nil)
	for _, name := range []string{"ada", "bob"} {
		e, err := leader.New(st, "lock", &leader.Options{Identity: name})
		if err != nil {
			log.Fatal(err)
		}
		if err := e.Run(ctx, func(context.Context, *leader.Term) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	e, err := leader.New(st, "lock", nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = e.Leader(ctx)
	fmt.Println(err)
	for rec, err := range e.History(ctx) {
		fmt.Println(rec.Epoch, rec.Holder, rec.State, rec.Reason, err)
	}
	// Output:
	// leader: nobody leads
	// 2 bob expired resigned <nil>
	// 1 ada expired resigned <nil>
}
