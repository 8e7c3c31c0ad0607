// Fencepost is the command line of the library. It appends files to a log that only one
// process at a time may write, prints the records, and maintains the log.
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
type interrupted struct{ signal syscall.Signal }

func (i *interrupted) Error() string { return "ended by signal: " + i.signal.String() }

func main() {
	// A closed pipe must be an error of the write, and not end the process: a leader
	// resigns first.
	// It is not ignored, since a command that gate run starts would ignore it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // what a shell started in the background ignores Ctrl-C, and goes on doing so
			signal.Notify(signals, s)
		}
	}
	go func() {
		s, _ := (<-signals).(syscall.Signal) // both of them are
		cancel(&interrupted{s})
		// A second signal ends the process at once. But terminals and timeout(1) send
		// copies of the first one; they do not count.
		time.Sleep(time.Second)
		signal.Stop(signals)
	}()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: term.IsTerminal(int(os.Stderr.Fd())), open: open}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// Hints for a store that only one process sees, such as mem://. Probe makes no log there.
const (
	goneHint  = "a log there would be gone with this process; write file:///dir or s3://bucket/prefix"
	probeHint = "only the process that opens this store sees it; to probe it, call probe.Run in a test of your program"
)

// open opens a store for the command line.
func open(ctx context.Context, url string) (store.Store, error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	if t := st.Traits(); !t.MultiProcess {
		return nil, &store.Error{Op: "open", Key: t.Name, Kind: store.ErrInvalid,
			Hint: goneHint}
	}
	return st, nil
}

// Exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1 // or damage found
	exitUsage   = 2
	exitUnknown = 3 // append: unknown whether some records are in the log
	exitSignal  = 128
)

// status is the exit status for an error.
func status(err error) int {
	var i *interrupted
	var f *fencedError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errOutcome): // also if a signal has caused it
		return exitUnknown
	case errors.As(err, &i):
		return exitSignal + int(i.signal)
	case errors.As(err, &f):
		return exitFenced
	case errors.Is(err, errUsage):
		return exitUsage
	}
	return exitFailed
}
