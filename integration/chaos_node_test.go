//go:build integration && linux

package integration

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// nodeRole is an environment variable that makes this binary a process of the chaos
// suite.
const nodeRole = "FENCEPOST_CHAOS_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(nodeRole)
	if role == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := node(ctx, role, os.Args[1:])
	asked := ctx.Err() != nil
	stop()
	if err != nil && !asked {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// chaosValidity is short, so that there are many failovers.
const chaosValidity = 800 * time.Millisecond

// shifted is a clock with a wrong time of day. (libfaketime does not work: Go asks the
// kernel, not the C library.)
type shifted struct {
	clock.Clock
	by time.Duration
}

func (s shifted) Wall() time.Time { return s.Clock.Wall().Add(s.by) }

// node runs one process of the suite. Its arguments are URL, name, clock shift and
// boot-clock shift.
func node(ctx context.Context, role string, args []string) error {
	switch role {
	case "gate":
		return makeGate()
	case "disk":
		return tryDisk(args[0])
	}
	if err := joinNetwork(); err != nil {
		return err
	}
	if role == "echo" || role == "leave" {
		return converse(role, args[0])
	}
	url, name := args[0], args[1]
	by, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, url)
	if err != nil {
		return err
	}
	clk := shifted{clock.Or(nil), by}
	settle := &store.SettleOptions{Attempt: time.Second, MaxBackoff: 100 * time.Millisecond}
	lead := &leader.Options{Identity: name, Validity: chaosValidity, Clock: clk}
	switch role {
	case "writer":
		up, err := time.ParseDuration(args[3])
		if err != nil {
			return err
		}
		return writes(ctx, st, name, up, &fencepost.Options{
			Leader: lead,
			Writer: &writer.Options{Concurrency: 4, Checkpoint: 300 * time.Millisecond, Settle: settle, Clock: clk},
		})
	case "compactor":
		lead.Prune.Keep = 2
		c, err := compactor.New(st, &compactor.Options{
			Interval: 200 * time.Millisecond, MinObjects: 16, SegmentBytes: 256 << 10, FanIn: 4,
			Leader: lead, Settle: settle, Clock: clk,
		})
		if err != nil {
			return err
		}
		return c.Run(ctx)
	case "worker":
		up, err := time.ParseDuration(args[3])
		if err != nil {
			return err
		}
		return shares(ctx, st, name, up, clk, settle)
	case "reader":
		from, err := strconv.ParseUint(args[4], 10, 64)
		if err != nil {
			return err
		}
		return reads(ctx, st, from, &reader.Options{Settle: settle, Clock: clk})
	}
	return fmt.Errorf("no role %q", role)
}

// writes appends the items of an endless source, in order. The cursor is the number of
// the next item. It prints "lead epoch ." and a line for each append: "+" acknowledged,
// "-" not committed or "?" unknown; the times of call and answer by the machine's clock;
// the offset; the values; and " .".
func writes(ctx context.Context, st store.Store, name string, up time.Duration, opts *fencepost.Options) error {
	say := speaker()
	for ctx.Err() == nil {
		err := fencepost.Run(ctx, st, opts, func(ctx context.Context, w *fencepost.Session) error {
			return appends(ctx, w.Writer, name, up, 25*time.Millisecond, say)
		})
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "run:", err)
			time.Sleep(200 * time.Millisecond) // the server may be down
		}
	}
	return nil
}

// speaker returns a function that prints whole lines, from any goroutine.
func speaker() (say func(format string, args ...any)) {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
}

// appends appends the next items of the source until ctx ends or an append fails, up to pause after
// each other.
func appends(ctx context.Context, w *writer.Writer, name string, up, pause time.Duration, say func(format string, args ...any)) error {
	item := 0
	if c := string(w.Recovered().Cursor); c != "" {
		var err error
		if item, err = strconv.Atoi(c); err != nil {
			return err
		}
	}
	if uint64(item) != w.Recovered().Offset {
		say("broken the cursor is %d, but the end offset is %d", item, w.Recovered().Offset)
	}
	say("lead %d .", w.Epoch())
	var told sync.WaitGroup
	defer told.Wait()
	for ctx.Err() == nil {
		var records [][]byte
		var values []string
		for range 1 + rand.IntN(3) {
			v := fmt.Sprintf("%d/%d/%s", item+len(values), w.Epoch(), name)
			values = append(values, v)
			records = append(records, []byte(v+strings.Repeat(".", rand.IntN(500))))
		}
		next := strconv.Itoa(item + len(values))
		called := elapsed(up)
		answered := func(what string, at uint64) {
			say("%s %d %d %d %s .", what, called, elapsed(up), at, strings.Join(values, " "))
		}
		f, err := w.AppendAsync(ctx, records, writer.Cursor([]byte(next)))
		if err != nil {
			answered("-", 0)
			return err
		}
		item += len(values)
		told.Go(func() {
			at, err := f.Wait(context.Background())
			switch {
			case err == nil:
				answered("+", at)
			case errors.Is(err, writer.ErrNotCommitted):
				answered("-", 0)
			default:
				answered("?", 0)
			}
		})
		if err := clock.Sleep(ctx, clock.Or(nil), time.Duration(rand.Int64N(int64(pause)))); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// digestEvery is the number of records in a reader's digest.
const digestEvery = 20

// digest extends a checksum by the next value.
func digest(sum uint32, value string) uint32 {
	return crc32.Update(sum, crc32.IEEETable, []byte(value+"\n"))
}

// value returns a record without its padding.
func value(record []byte) string { return strings.TrimRight(string(record), ".") }

// reads tails the log and prints "sum from to digest ." after every digestEvery records.
func reads(ctx context.Context, st store.Store, from uint64, opts *reader.Options) error {
	next := from
	for ctx.Err() == nil {
		r, err := reader.Open(ctx, st, opts)
		if err == nil {
			sum, begin := uint32(0), next
			for rec, rerr := range r.Tail(ctx, next) {
				if err = rerr; err != nil {
					break
				}
				if rec.Offset != next {
					fmt.Printf("broken record %d came after %d\n", rec.Offset, next)
				}
				next = rec.Offset + 1
				sum = digest(sum, value(rec.Value))
				if next-begin == digestEvery {
					fmt.Printf("sum %d %d %d .\n", begin, next, sum)
					sum, begin = 0, next
				}
			}
			next = begin
		}
		if ctx.Err() == nil {
			if errors.Is(err, reader.ErrCorrupt) || errors.Is(err, reader.ErrGone) {
				fmt.Printf("broken %v\n", err)
				return err
			}
			fmt.Fprintln(os.Stderr, "tail:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}
