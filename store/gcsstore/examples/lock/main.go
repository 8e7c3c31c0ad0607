// Lock is a leader election on a bucket of Google Cloud Storage: lock,
// heartbeat, takeover. Run it on several machines, then kill the one that leads:
//
//	go run ./examples/lock gs://bucket/jobs
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/gcsstore" // gs://
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: lock gs://bucket/prefix")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1])
	asked := ctx.Err() != nil // to stop, by ^C
	stop()
	if err != nil && !asked {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	st, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	name := leader.DefaultIdentity()
	e, err := leader.New(st, "lock", &leader.Options{Identity: name, Validity: 5 * time.Second})
	if err != nil {
		return err
	}
	fmt.Println(name, "is waiting")
	return e.Run(ctx, func(ctx context.Context, term *leader.Term) error {
		for ctx.Err() == nil { // it ends when the lock is lost
			// Whatever this writes carries the epoch, so that a store can refuse an
			// older one: a lock alone does not stop a leader that was asleep.
			fmt.Println(name, "leads in epoch", term.Epoch())
			time.Sleep(time.Second)
		}
		return context.Cause(ctx)
	})
}
