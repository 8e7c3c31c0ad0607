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
	"log"
	"os"

	"golang.org/x/term"

	_ "github.com/fencepost/fencepost" // the drivers
	"github.com/fencepost/fencepost/store"
)

func main() {
	ctx, handOver := untilSignal()
	notes := newNotes(os.Stderr)
	log.SetOutput(notes) // where the standard library reports what no error says, such as a connection that is broken off
	a := &app{in: os.Stdin, out: newOutput(ctx, os.Stdout), err: notes, terminal: term.IsTerminal(int(os.Stderr.Fd())), open: open, handOver: handOver}
	status := a.run(ctx, os.Args[1:])
	notes.lines.Wait(lastWords)
	os.Exit(status)
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
