package fencepost_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// words is the source of the records. It can be read from any place.
func words(from int) []string {
	return strings.Fields("one two three four five")[from:]
}

// Run this program on any number of machines. One at a time writes, and each continues
// where the one before stopped.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	st, err := store.Open(ctx, "mem://orders") // or s3://bucket/orders, file:///var/lib/orders
	if err != nil {
		log.Fatal(err)
	}
	opts := &fencepost.Options{Slog: slog.Default()} // it tells who leads, who waits for whom, what fails
	err = fencepost.Run(ctx, st, opts, func(ctx context.Context, s *fencepost.Session) error {
		done, _ := strconv.Atoi(string(s.Recovered().Cursor)) // where the last leader's work ends
		for _, word := range words(done) {
			done++
			cursor := writer.Cursor([]byte(strconv.Itoa(done)))
			// One append is one atom: the record and the cursor, or neither.
			if _, err := s.AppendAsync(ctx, [][]byte{[]byte(word)}, cursor); err != nil {
				return err
			}
		}
		return s.Flush(ctx) // nil: all of it is in the history, for ever
	})
	if err != nil {
		log.Fatal(err)
	}

	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		log.Fatal(err)
	}
	for rec, err := range r.Read(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.Offset, string(rec.Value))
	}
	// Output:
	// 0 one
	// 1 two
	// 2 three
	// 3 four
	// 4 five
}

// Work that has effects outside the log asks the session before each of them, and tells
// it that the work is alive.
func ExampleSession() {
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")
	opts := &fencepost.Options{Leader: &leader.Options{StallAfter: 30 * time.Second}}
	var mail fence.Gate // stands for a service that refuses the epochs of old leaders

	err := fencepost.Run(context.Background(), st, opts, func(ctx context.Context, s *fencepost.Session) error {
		for _, word := range words(3) {
			s.Progress() // without it, work that hangs loses its lock after 30 s
			if _, err := s.Append(ctx, [][]byte{[]byte(word)}); err != nil {
				return err
			}
			if err := s.Check(5 * time.Second); err != nil { // sending takes up to 5 s
				return err
			}
			send := func() error {
				_, err := fmt.Println("sent", word, "in epoch", s.Epoch())
				return err
			}
			if err := mail.Do(ctx, s.Epoch(), send); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// sent four in epoch 1
	// sent five in epoch 1
}

// A process that is about to be replaced makes way for another one and stays a
// candidate.
func ExampleSession_Resign() {
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")
	opts := &fencepost.Options{Leader: &leader.Options{Drain: time.Second, Renew: time.Second}}

	err := fencepost.Run(context.Background(), st, opts, func(ctx context.Context, s *fencepost.Session) error {
		if s.Epoch() == 2 {
			return nil // the work is done: Run ends
		}
		if _, err := s.Append(ctx, [][]byte{[]byte("bye")}); err != nil {
			return err
		}
		s.Resign()
		// If another candidate waits, the work goes on until that one leads. Nobody waits
		// here, so the context ends at once.
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return context.Cause(ctx) // Run contends again
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: leader: resigned (epoch 1)
}

// A compactor runs as a job of its own or as a goroutine beside the leader. This one
// does what there is to do once.
func Example_compact() {
	ctx := context.Background()
	st, err := store.Open(ctx, "mem://orders")
	if err != nil {
		log.Fatal(err)
	}
	c, err := compactor.New(st, nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := c.Once(ctx) // or c.Run(ctx), until ctx ends
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Records, "records in", report.Segments, "segment")
	// Output: 5 records in 1 segment
}
