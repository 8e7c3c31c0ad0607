package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/fencepost/fencepost/sink"
)

// WatchdogVerb is how exec and lock start the watchdog of their command.
const WatchdogVerb = "watchdog"

// Forwarded are the signals that a command gets when this process does. What was ignored when this process was started
// stays ignored: see nohup(1).
func Forwarded() (all []os.Signal) {
	for _, s := range Passed {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// SignalNumber is a signal that was received.
func SignalNumber(s os.Signal) syscall.Signal {
	n, _ := s.(syscall.Signal)
	return n
}

// InterruptedError is the cause of a context that a signal has ended.
type InterruptedError struct{ Signal syscall.Signal }

func (i *InterruptedError) Error() string { return "ended by signal: " + i.Signal.String() }

// UntilSignal returns a context that the first signal ends: Ctrl-C, SIGTERM, or SIGHUP when the terminal goes.
// After handOver it no longer ends at SIGHUP, which the caller then receives itself.
func UntilSignal() (ctx context.Context, handOver func()) {
	// A closed pipe must be an error of the write, and not end the process: a leader
	// resigns first.
	// It is not ignored, since a command that gate run starts would ignore it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals, hangUps := make(chan os.Signal, 1), make(chan os.Signal, 1)
	for s, c := range map[os.Signal]chan os.Signal{os.Interrupt: signals, syscall.SIGTERM: signals, syscall.SIGHUP: hangUps} {
		if !signal.Ignored(s) { // what a shell started in the background ignores Ctrl-C, and goes on doing so; see nohup(1), too
			signal.Notify(c, s)
		}
	}
	go func() {
		var s os.Signal
		select {
		case s = <-signals:
		case s = <-hangUps:
		}
		cancel(&InterruptedError{SignalNumber(s)})
		// A second signal ends the process at once. But terminals and timeout(1) send
		// copies of the first one; they do not count.
		time.Sleep(time.Second)
		signal.Stop(signals)
		signal.Stop(hangUps)
	}()
	return ctx, func() { signal.Stop(hangUps) }
}

// ToTheEnd returns a context that SIGTERM does not end, but each other signal that ends ctx. Told is called at SIGTERM.
func ToTheEnd(ctx context.Context, told func()) (to context.Context, stop func()) {
	to, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 4)
	unhook := context.AfterFunc(ctx, func() {
		if i, ok := errors.AsType[*InterruptedError](context.Cause(ctx)); !ok || i.Signal != syscall.SIGTERM {
			cancel(context.Cause(ctx))
			return
		}
		told()
		// After the first signal UntilSignal receives no more. Later ones of SIGTERM have no effect.
		for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
			if !signal.Ignored(s) {
				signal.Notify(signals, s)
			}
		}
		for {
			select {
			case <-to.Done():
				return
			case s := <-signals:
				if s != syscall.SIGTERM {
					cancel(&InterruptedError{SignalNumber(s)})
				}
			}
		}
	})
	return to, func() {
		unhook()
		cancel(nil)
		signal.Stop(signals)
	}
}

// LastWords is how long a part of a write may last after a signal.
const LastWords = time.Second

// output is a file to which writes end soon after a signal if nobody reads it: the lead must be given up, and the
// process must end. What is read at more than 32 KiB a second is written whole.
type output struct {
	file  *os.File
	ended <-chan struct{} // closed by the signal

	turn  sync.Mutex // of one write after the other
	buf   []byte
	stuck bool
}

// NewOutput returns standard output, whose writes end soon after ctx.
func NewOutput(ctx context.Context, f *os.File) *output { return &output{file: f, ended: ctx.Done()} }

// Fd makes an output count as the terminal that its file may be.
func (o *output) Fd() uintptr { return o.file.Fd() }

func (o *output) Write(b []byte) (int, error) {
	o.turn.Lock()
	defer o.turn.Unlock()
	if o.stuck {
		return 0, errStuck
	}
	// A copy: a write that nobody waits for any more may still read it.
	o.buf = append(o.buf[:0], b...)
	var wrote atomic.Int64
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A pipe has room for 64 KiB at most. In parts it shows that somebody reads.
		for part := range slices.Chunk(o.buf, 32<<10) {
			var n int
			n, err = o.file.Write(part)
			wrote.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	select {
	case <-done:
		return int(wrote.Load()), err
	case <-o.ended:
	}
	for before := int64(-1); ; {
		now := wrote.Load()
		if now == before {
			o.stuck = true
			return int(now), errStuck
		}
		before = now
		select {
		case <-done:
			return int(wrote.Load()), err
		case <-time.After(LastWords):
		}
	}
}

// notes is standard error. Nothing waits for it for longer than a moment: who leads would keep the lead, and do no work.
type notes struct {
	file  *os.File
	Lines sink.Queue
}

// NewNotes returns standard error.
func NewNotes(f *os.File) *notes {
	n := &notes{file: f}
	n.Lines.Lost = func(lines int) error {
		_, err := fmt.Fprintf(f, "fencepost: %d %s not written: standard error was blocked, or failed\n", lines, english.PluralWord(lines, "line was", "lines were"))
		return err
	}
	return n
}

// Fd makes them count as the terminal that the file may be.
func (n *notes) Fd() uintptr { return n.file.Fd() }

func (n *notes) Write(b []byte) (int, error) {
	text := bytes.Clone(b)
	n.Lines.Do(bytes.Count(text, []byte("\n")), func() error {
		_, err := n.file.Write(text)
		return err
	})
	return len(b), nil
}

var errStuck = fmt.Errorf("nobody has read it for %v after a signal", LastWords)

// OpenInput opens a file to read from. Until something writes to a named pipe, that lasts: it says so, and a
// signal ends it.
func (k *Kit) OpenInput(ctx context.Context, name string) (*os.File, error) {
	return Patiently(ctx, k, "still opening "+name+"; if it is a named pipe, nothing writes to it yet", func() (*os.File, error) { return os.Open(name) })
}

// Patiently calls what no context ends. While that lasts it says so, and a signal ends the wait.
func Patiently[T any](ctx context.Context, k *Kit, note string, do func() (T, error)) (T, error) {
	var v T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = do()
	}()
	for wait := k.Patience; ; wait = min(2*wait, 10*time.Minute) {
		select {
		case <-done:
			return v, err
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		case <-time.After(wait):
			k.Console.Note("%s", note)
		}
	}
}
