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
	"log"
	"os"

	"golang.org/x/term"

	_ "github.com/fencepost/fencepost" // the drivers
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

func main() {
	ctx, handOver := kit.UntilSignal()
	notes := kit.NewNotes(os.Stderr)
	log.SetOutput(notes) // where the standard library reports what no error says, such as a connection that is broken off
	k := &kit.Kit{In: os.Stdin, Out: kit.NewOutput(ctx, os.Stdout), Err: notes, Terminal: term.IsTerminal(int(os.Stderr.Fd())), Open: kit.Open, HandOver: handOver}
	status := runWith(ctx, k, os.Args[1:])
	notes.Lines.Wait(kit.LastWords)
	os.Exit(status)
}
