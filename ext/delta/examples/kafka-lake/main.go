//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

func main() {
	var c config
	flag.StringVar(&c.brokers, "brokers", "", "Kafka's brokers, as host:port,host:port; default: a Kafka in this process")
	flag.StringVar(&c.topic, "topic", "", "with -worker: the topic")
	flag.StringVar(&c.store, "store", "", "where logs and table go, such as s3://bucket/prefix?endpoint=…; default: a temporary directory")
	flag.StringVar(&c.worker, "worker", "", "run one worker of this name, and nothing else")
	flag.IntVar(&c.partitions, "partitions", 8, "how many partitions the topic of the story has")
	flag.IntVar(&c.rate, "rate", 4000, "how many messages the story produces in a second")
	flag.DurationVar(&c.flush, "flush", 10*time.Second, "with -worker: how long a message waits for others in its file")
	flag.Uint64Var(&c.rows, "rows", 1_000_000, "with -worker: how many messages a file has at most")
	flag.DurationVar(&c.validity, "validity", 15*time.Second, "with -worker: how long a worker holds its partitions without a heartbeat")
	flag.DurationVar(&c.grace, "grace", 0, "with -worker: how long the compactor keeps what a log does not need any more; default 10m")
	flag.BoolVar(&c.staged, "staged", false, "with -worker: take the narrator's commands from standard input")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "kafka-lake: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	collectRarely()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case c.worker != "" && (c.brokers == "" || c.topic == "" || c.store == ""):
		err = fmt.Errorf("a worker needs -brokers, -topic and -store")
	case c.worker != "":
		err = runWorker(ctx, c, os.Stdin, os.Stdout)
	default:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
		err = tell(ctx, c, os.Stdout)
		cancel()
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafka-lake:", err)
		os.Exit(1)
	}
}

// collectRarely lets the garbage collector come when the heap has grown to five times what is live. A
// worker has little that lives, and a new buffer for each answer of Kafka. Who sets GOGC decides.
func collectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
