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

// An operator deposes a leader that hangs. It learns so at its next heartbeat, and its term ends.
func ExampleElector_StepDown() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/jobs")
	worker, err := leader.New(st, "lock", &leader.Options{Identity: "worker-1", Validity: time.Second, NoPrune: true})
	if err != nil {
		log.Fatal(err)
	}
	term, err := worker.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}

	operator, err := leader.New(st, "lock", nil)
	if err != nil {
		log.Fatal(err)
	}
	was, err := operator.StepDown(ctx, nil)
	fmt.Println(was.Holder, "led in epoch", was.Epoch, err)
	<-term.Context().Done()
	fmt.Println(errors.Is(context.Cause(term.Context()), leader.ErrDeposed))
	// Output:
	// worker-1 led in epoch 1 <nil>
	// true
}

// Check asks the clock, and Confirm asks the store. A leader that needs to know that it has not been
// deposed, calls Confirm.
func ExampleTerm_Confirm() {
	ctx := context.Background()
	st := memstore.New(nil)
	e, err := leader.New(st, "lock", nil)
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(term.Confirm(ctx)) // this process led at some moment during the call

	if _, err := e.StepDown(ctx, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(term.Check(0)) // it may go on until its deadline, as no heartbeat was due since
	fmt.Println(errors.Is(term.Confirm(ctx), leader.ErrDeposed))
	// Output:
	// <nil>
	// <nil>
	// true
}

// The work is another process, which does not end with the term's context. So it is asked to end then, and is
// killed when Held is down to the time that killing takes.
func ExampleTerm_Held() {
	ctx := context.Background()
	e, err := leader.New(memstore.New(nil), "lock", nil)
	if err != nil {
		log.Fatal(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(term.Held() > time.Second) // nobody else leads for so long
	fmt.Println(term.Resign(ctx))
	fmt.Println(term.Held()) // another process may lead
	// Output:
	// true
	// <nil>
	// 0s
}

// A program that takes no part in the election follows it: here until nobody leads any more.
func ExampleElector_Observe() {
	ctx := context.Background()
	st := memstore.New(nil)
	worker, err := leader.New(st, "lock", &leader.Options{Identity: "worker-1", Validity: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	term, err := worker.Campaign(ctx)
	if err != nil {
		log.Fatal(err)
	}
	observer, err := leader.New(st, "lock", &leader.Options{Validity: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	for rec, err := range observer.Observe(ctx) {
		switch {
		case err != nil:
			log.Fatal(err)
		case rec.Leads():
			fmt.Println(rec.Holder, "leads in epoch", rec.Epoch)
			if err := term.Resign(ctx); err != nil {
				log.Fatal(err)
			}
			continue
		}
		fmt.Println("nobody leads:", rec.State)
		break
	}
	// Output:
	// worker-1 leads in epoch 1
	// nobody leads: expired
}
