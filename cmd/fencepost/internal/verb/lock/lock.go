// Package lock is the verb lock.
package lock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// prefix is where the locks are, below the URL.
const prefix = "locks"

// errWaited ends the wait for the name.
var errWaited = errors.New("waited long enough")

// call is one call of lock.
type call struct {
	*kit.Kit
	url, name string
	argv      []string
	shell     string
	noWait    bool
	wait      time.Duration
	conflict  int
	validity  time.Duration
	grace     time.Duration

	signals chan os.Signal
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	x := &call{Kit: k}
	c := &cobra.Command{
		Use:   "lock [-n | -w D] [-E N] URL NAME {-c SHELL_COMMAND | -- COMMAND [ARG...]}",
		Short: "run a command while this machine holds a lock, as flock(1) does",
		Long: `Lock waits until this process holds the lock NAME, runs COMMAND, and frees the lock. Of
all that are started with the same URL and NAME, on whatever machines, one runs at a
time. Those who wait come about in their order. A URL has thousands of names, and
nothing is left of those that nobody holds.

COMMAND runs as with exec: without a shell, with this process's input, output and
terminal. Its environment also has FENCEPOST_URL, FENCEPOST_LOCK (the name) and
FENCEPOST_EPOCH (the token: higher than all before of this name). With -c it is a line
for /bin/sh. Signals are passed on to it.

If the lock is lost, COMMAND and all that it has started get SIGTERM, and --grace later
SIGKILL, so that they are dead before another process holds the lock. A watchdog process
sees to that even if this one is frozen or killed. The lock of a machine that has
crashed is free after its validity, 15 s by default.

The exit status is that of COMMAND, 128 and the number of the signal that killed it, 75
(or that of -E: flock has 1) if somebody else holds the lock, 76 if the lock was lost, 126
or 127 if COMMAND cannot be run.

A command that was paused does not know that it lost the lock. Let the places that it
writes to check FENCEPOST_EPOCH. Lock and unlock are four requests, and a lock that is
held for long ten PUTs a minute. It needs Linux, and the rights to read, write, list and
delete below locks/; for the first lock also below tmp/, where it probes the store.`,
		Example: "fencepost lock -n s3://bucket/jobs nightly -- ./report.sh --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := x.arguments(cmd, args); err != nil {
				return err
			}
			return x.run(cmd.Context())
		},
	}
	fl, short := c.Flags(), &pflag.FlagSet{}
	kit.SpanVar(short, &x.wait, "wait", "", kit.Positive, "how long to wait, in seconds or as 5m (default for ever)")
	kit.CountVar(short, &x.conflict, "conflict-exit-code", kit.ExitBusy, "exit status if somebody else holds the lock")
	wait := short.Lookup("wait").Value.(*kit.Checked)
	parse := wait.Parse
	wait.Parse = func(s string) error {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			s += "s" // as flock has it
		}
		return parse(s)
	}
	for _, f := range []*pflag.Flag{short.Lookup("wait"), short.Lookup("conflict-exit-code")} { // in the order of help
		if f.Shorthand = "E"; f.Name == "wait" {
			f.Shorthand = "w"
		}
		fl.AddFlag(f)
	}
	fl.BoolVarP(&x.noWait, "no-wait", "n", false, "give up at once if somebody else holds the lock")
	fl.StringVarP(&x.shell, "command", "c", "", "a line for /bin/sh, in the place of COMMAND")
	kit.SpanVar(fl, &x.validity, "validity", "15s", kit.Positive, "how long a lock holds without a heartbeat")
	kit.SpanVar(fl, &x.grace, "grace", "", kit.Positive, "time from SIGTERM to SIGKILL (default a fifth of the validity)")
	kit.Excludes(c, "wait", "no-wait")
	return c
}

func (x *call) arguments(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case x.shell != "" && dash < 0 && len(args) == 2:
		x.argv = []string{"/bin/sh", "-c", x.shell}
	case x.shell == "" && dash == 2 && len(args) > 2:
		x.argv = args[2:]
	case x.shell == "" && dash < 0 && len(args) > 2:
		return kit.Usage("lock: write -- before the command: fencepost lock URL NAME -- COMMAND; see fencepost help lock")
	default:
		return kit.Usage("lock takes %s; see fencepost help lock", strings.TrimPrefix(cmd.Use, "lock "))
	}
	x.url, x.name = args[0], args[1]
	if x.conflict > 255 {
		return kit.Usage("--conflict-exit-code %d: an exit status is at most 255", x.conflict)
	}
	x.grace = cmp.Or(x.grace, x.validity/5)
	// A heartbeat must come before the command is told to end.
	if most := x.validity/10*9 - x.validity*2/5; x.grace >= most {
		return kit.Usage("--grace %v must be less than %v: a lock of --validity %v lasts %v without a heartbeat, and the next one comes after %v",
			x.grace, most, x.validity, x.validity/10*9, x.validity*2/5)
	}
	return nil
}

func (x *call) run(ctx context.Context) error {
	path, err := exec.LookPath(x.argv[0])
	if err != nil {
		return x.CannotRun(err)
	}
	st, err := x.Store(ctx, x.url, true)
	if err != nil {
		return err
	}
	if err := kit.Writable(ctx, st); err != nil {
		return err
	}
	locks, err := lock.New(st, prefix, &lock.Options{Validity: x.validity})
	if err != nil {
		return kit.Usage("%w", err)
	}
	x.signals = make(chan os.Signal, 64)
	signal.Notify(x.signals, kit.Forwarded()...)
	defer signal.Stop(x.signals)
	if x.HandOver != nil {
		x.HandOver() // for commands SIGHUP often means something else than an end
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	k, err := x.acquire(ctx, locks)
	if err == nil {
		if err = x.probed(ctx, st); err == nil {
			err = x.outcome(x.work(k, path))
		}
		err = cmp.Or(err, x.free(k))
	}
	ending, cancel := clock.WithTimeout(context.WithoutCancel(ctx), clock.System(), x.validity, lock.ErrNotReleased)
	defer cancel()
	_ = locks.Close(ending)
	return err
}

// acquire waits for the lock. A signal ends the wait.
func (x *call) acquire(parent context.Context, locks *lock.Locker) (*lock.Lock, error) {
	ctx, end := context.WithCancelCause(parent)
	defer end(nil)
	over, handled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(handled)
		for {
			select {
			case <-over:
				return
			case s := <-x.signals:
				switch n := kit.SignalNumber(s); n {
				case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
					end(&kit.InterruptedError{Signal: n})
				}
			}
		}
	}()
	defer func() { close(over); <-handled }()
	if x.wait > 0 {
		defer clock.System().AfterFunc(x.wait, func() { end(errWaited) }).Stop()
	}
	k, err := locks.TryAcquire(ctx, x.name)
	held := (*lock.HeldError)(nil)
	if errors.As(err, &held) && !x.noWait && ctx.Err() == nil {
		x.Console.Note("waiting: %s", strings.TrimPrefix(kit.Line(err), "lock: "))
		k, err = locks.Acquire(ctx, x.name)
	}
	waited := ctx.Err() != nil
	switch {
	case err == nil:
		return k, nil
	case waited && !errors.Is(context.Cause(ctx), errWaited):
		return nil, context.Cause(ctx)
	case errors.As(err, &held), waited && held != nil:
		x.Console.Note("fencepost: %s", strings.TrimPrefix(kit.Line(held), "lock: "))
		return nil, kit.CodeError(x.conflict)
	case errors.Is(err, lock.ErrOptions):
		return nil, kit.Usage("%w", err)
	case waited && !isStores(err): // others were faster each time
		x.Console.Note("fencepost: %v", errWaited)
		return nil, kit.CodeError(x.conflict)
	}
	return nil, err
}

func isStores(err error) bool {
	_, is := errors.AsType[*store.Error](err)
	return is
}

// probedKey says that the store was probed: what it has is for people.
const probedKey = prefix + "/probed.json"

// probed probes a store once: one that ignores conditions locks nothing.
//
// guard:lock-probed. No command runs under a lock before its store was probed, and was found to keep conditions.
//
//mutant:replace errors.Is(err, store.ErrNotFound) => false
func (x *call) probed(ctx context.Context, st store.Store) error {
	_, _, err := store.Read(ctx, st, probedKey, &store.ReadOptions{Length: 1})
	if errors.Is(err, store.ErrNotFound) {
		o := x.Probing(x.url)
		o.UploadSize = 1 // nothing is uploaded here
		var r *probe.Report
		if r, err = probe.Run(ctx, st, o); err == nil {
			var body []byte
			if body, err = json.Marshal(probed{fence.ID(uuid.New()), r}); err == nil {
				_, err = store.Create(ctx, st, probedKey, body, nil)
			}
		}
	}
	if errors.Is(err, store.ErrPrecondition) { // somebody else has probed it too
		return nil
	}
	return err
}

// probed is the object at probedKey.
type probed struct {
	Nonce fence.ID      `json:"nonce"`
	Probe *probe.Report `json:"probe"`
}

// work runs the command.
func (x *call) work(k *lock.Lock, path string) (supervise.Status, error) {
	signals := make(chan syscall.Signal, 16)
	over, handled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(handled)
		for {
			select {
			case <-over:
				return
			case s := <-x.signals:
				select {
				case signals <- kit.SignalNumber(s):
				default: // it does not take them
				}
			}
		}
	}()
	defer func() { close(over); <-handled }()
	status, err := supervise.Run(k.Context(), &supervise.Command{
		Path: path, Args: x.argv, Env: x.environment(k), Watchdog: []string{"fencepost", kit.WatchdogVerb}, Held: k.Held, Grace: x.grace, Signals: signals,
	})
	if cause := context.Cause(k.Context()); cause != nil {
		err = fmt.Errorf("%w: %w", supervise.ErrLost, cause)
	}
	return status, err
}

// outcome is the error with which lock ends.
func (x *call) outcome(status supervise.Status, err error) error {
	var start *supervise.StartError
	switch {
	case err == nil && status.Exit() == 0:
		return nil
	case err == nil:
		return kit.CodeError(status.Exit())
	case errors.Is(err, supervise.ErrUnsupported):
		return fmt.Errorf("lock does not work on this system: %w", err)
	}
	x.Console.Note("fencepost: %v", err)
	switch {
	case errors.As(err, &start):
		return kit.CodeError(kit.ExitNotRunnable)
	case errors.Is(err, supervise.ErrLost), errors.Is(err, supervise.ErrWatchdog):
		return kit.CodeError(kit.ExitLost)
	}
	return err
}

// free releases the lock. That it failed does not change how the command has ended.
func (x *call) free(k *lock.Lock) error {
	ctx, cancel := clock.WithTimeout(context.Background(), clock.System(), x.validity, lock.ErrNotReleased)
	defer cancel()
	if err := k.Release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
		x.Console.Note("fencepost: %s; it lapses after %v", kit.Line(err), x.validity)
	}
	return nil
}

func (x *call) environment(k *lock.Lock) []string {
	return kit.Environment("FENCEPOST_URL="+x.url, "FENCEPOST_LOCK="+x.name, "FENCEPOST_EPOCH="+strconv.FormatUint(uint64(k.Token().Epoch()), 10))
}
