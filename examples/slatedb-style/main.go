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
	url := flag.String("store", "", "where the log goes, such as s3://bucket/prefix?endpoint=…; default: a temporary directory")
	node := flag.String("node", "", "run as the node of this name (the command starts its nodes so)")
	prefix := flag.String("prefix", "", "with -node: the log below the store")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "slatedb-style: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *node != "" {
		err = runNode(ctx, *url, *prefix, *node, os.Stdin, os.Stdout)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 28*time.Second)
		err = tell(ctx, *url, os.Stdout)
		cancel()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slatedb-style:", err)
		os.Exit(1)
	}
}
