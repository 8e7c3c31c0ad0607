//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	url := flag.String("store", "", "where the logs go, such as s3://bucket/prefix?endpoint=…; default: a temporary directory")
	worker := flag.String("worker", "", "run as the worker of this name (the command starts its workers so)")
	prefix := flag.String("prefix", "", "with -worker: the group below the store")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "group: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *worker != "" {
		err = runWorker(ctx, *url, *prefix, *worker, os.Stdin, os.Stdout)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
		err = tell(ctx, *url, os.Stdout)
		cancel()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "group:", err)
		os.Exit(1)
	}
}
