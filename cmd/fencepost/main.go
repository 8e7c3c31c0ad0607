// Fencepost is the command line of the library: it appends files to a log that
// only one process may write at a time, prints them, and looks after the log.
//
//	fencepost append --cursor s3://bucket/orders?endpoint=http://127.0.0.1:9000 orders.txt
//	fencepost cat s3://bucket/orders?endpoint=http://127.0.0.1:9000
//
// Data goes to standard output, everything else to standard error. See
// fencepost help.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	_ "github.com/fencepost/fencepost" // the drivers
	"github.com/fencepost/fencepost/store"
)

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal os.Signal }

func (i *interrupted) Error() string { return "ended by signal: " + i.signal.String() }

func main() {
	// A closed pipe is an error of the write, not the end of the process: a leader
	// resigns first.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		cancel(&interrupted{s})
		// The next one ends the process at once; but not the copies of this one that
		// timeout(1) and terminals send.
		time.Sleep(time.Second)
		signal.Stop(signals)
	}()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd())), open: open}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// open opens a store for the command line.
func open(ctx context.Context, url string) (store.Store, error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	if t := st.Traits(); !t.MultiProcess {
		return nil, &store.Error{Op: "open", Key: t.Name, Kind: store.ErrInvalid,
			Hint: "it would live in this process only and be gone with it; write file:///dir or s3://bucket/prefix"}
	}
	return st, nil
}

// Exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1 // or damage found
	exitUsage   = 2
	exitUnknown = 3 // append: some records may be in the log or not
	exitSignal  = 128
)

// status is the exit status for an error.
func status(err error) int {
	var i *interrupted
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &i):
		if s, ok := i.signal.(syscall.Signal); ok {
			return exitSignal + int(s)
		}
		return exitSignal + int(syscall.SIGINT)
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errOutcome):
		return exitUnknown
	}
	return exitFailed
}
