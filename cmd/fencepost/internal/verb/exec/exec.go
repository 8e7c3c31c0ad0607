// Package exec is the verb exec.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// errBusy ends the wait for the lead.
var errBusy = errors.New("somebody else leads")

// execution is one call of exec.
type execution struct {
	*kit.Kit
	url      string
	argv     []string
	path     string
	wait     time.Duration
	noWait   bool
	restart  bool
	grace    time.Duration
	poll     time.Duration
	election func() leader.Options
	leader   leader.Options

	group                 bool
	partitions            int
	base                  fence.Epoch
	graceSet, validitySet bool

	dir     string // of the files that tell commands their deadlines
	signals chan os.Signal
	ending  bool // a signal was received that ends exec, also if the lead is lost
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	x := &execution{Kit: k}
	c := &cobra.Command{
		Use:   "exec [--wait D | --no-wait] [--restart] [--group] URL -- COMMAND [ARG...]",
		Short: "run a command while this machine leads",
		Long: `Exec waits until this process leads, and runs COMMAND for as long as it does. Of all
that are started with the same URL, on whatever machines, one command runs at a time.

COMMAND runs without a shell, in a process group of its own, with this process's standard
input, output and terminal. Its environment also has FENCEPOST_URL, FENCEPOST_EPOCH (the
number of this leadership, higher than all before), FENCEPOST_HOLDER, and
FENCEPOST_DEADLINE_FILE. That file says when the command must end unless the lease is
renewed until then; see docs/exec.md.

If the lead is lost, COMMAND and all that it has started get SIGTERM, and --grace later
SIGKILL, so that they are dead before another process leads. A watchdog process sees to
that even if this one is frozen or killed. --grace is a fifth of the validity by default.
If it is given, it also holds when a signal ends exec, which else waits for COMMAND.

With --group COMMAND runs once for each partition that this process owns, in a group of
all that are started so, with FENCEPOST_PARTITION and no input. A command that fails is
tried again, at last by another member; one that ends with status 0 has done its work.

Signals are passed on. At the first SIGTERM the command works on until another process
that waits has seen that, which takes up to --poll. If none waits, it gets the signal at
once.

The exit status is that of COMMAND, 128 and the number of the signal that killed it, 75
if somebody else leads, 76 if the lead was lost, 126 or 127 if COMMAND cannot be run.

A command that was paused does not know that it lost the lead. Let the places that it
writes to check FENCEPOST_EPOCH. It needs Linux, and the rights of a candidate, as in
docs/policies.md, or of a member of a group. If COMMAND appends, it also needs those of
a writer.`,
		Example: "fencepost exec s3://bucket/nightly -- ./report.sh --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0:
				return kit.Usage("exec: write -- before the command: fencepost exec URL -- COMMAND; see fencepost help exec")
			case dash != 1 || len(args) < 2:
				return kit.Usage("exec takes %s; see fencepost help exec", "[--wait D | --no-wait] [--restart] [--group] URL -- COMMAND [ARG...]")
			}
			x.url, x.argv = args[0], args[1:]
			x.graceSet, x.validitySet = x.grace > 0, cmd.Flags().Changed("validity")
			return x.run(cmd.Context())
		},
	}
	fl := c.Flags()
	kit.SpanVar(fl, &x.wait, "wait", "", kit.Positive, "how long to wait for the lead (default as long as it takes)")
	fl.BoolVarP(&x.noWait, "no-wait", "n", false, "give up at once if somebody else leads")
	fl.BoolVar(&x.restart, "restart", false, "start the command again when it ends, in a new epoch, unless somebody ended it")
	kit.SpanVar(fl, &x.grace, "grace", "", kit.Positive, "time from SIGTERM to SIGKILL; see above")
	kit.SpanVar(fl, &x.poll, "poll", "", kit.Positive, "how often to look who leads (default 1/40 of the validity)")
	fl.BoolVar(&x.group, "group", false, "run a command for each partition of the group that this process owns")
	kit.CountVar(fl, &x.partitions, "partitions", 0, "as --group; make the group, or raise its number of partitions")
	fl.Uint64Var((*uint64)(&x.base), "base", 0, "with --partitions: if the group is made, its epochs are above this")
	x.election = k.Election(c)
	k.ListenFlag(c)
	kit.Needs(c, "partitions", "base")
	kit.Excludes(c, "wait", "no-wait")
	for _, group := range []string{"group", "partitions"} { // a member waits until it owns something
		kit.Excludes(c, group, "wait", "no-wait", "poll")
	}
	return c
}

// Watchdog returns the hidden verb.
func Watchdog(k *kit.Kit) *cobra.Command {
	return &cobra.Command{
		Use: kit.WatchdogVerb, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return supervise.Watchdog(args) },
	}
}

func (x *execution) run(ctx context.Context) error {
	if err := x.options(); err != nil {
		return err
	}
	var err error
	if x.path, err = exec.LookPath(x.argv[0]); err != nil {
		return x.CannotRun(err)
	}
	st, err := x.Store(ctx, x.url, true)
	if err != nil {
		return err
	}
	if err := kit.Writable(ctx, st); err != nil {
		return err
	}
	x.signals = make(chan os.Signal, 64)
	signal.Notify(x.signals, kit.Forwarded()...)
	defer signal.Stop(x.signals)
	if x.HandOver != nil {
		x.HandOver() // for commands SIGHUP often means something else than an end
	}
	// A signal that came during the first contact has ended only ctx, and from now on exec does not look at ctx.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Before anybody leads: a TMPDIR that hangs must keep no lead.
	x.dir, err = kit.Patiently(ctx, x.Kit, "still making a directory in "+os.TempDir()+"; set TMPDIR to one that answers", newDirectory)
	if err != nil {
		return err
	}
	defer removeDirectory(x.dir)
	if x.group {
		return x.share(ctx, st)
	}
	return x.outcome(x.repeat(ctx, st))
}

// repeat leads once, or with --restart until it is to end. Each command has a leadership of its own: what it writes to, such as
// a log of Fencepost, may accept an epoch only once.
func (x *execution) repeat(ctx context.Context, st store.Store) error {
	var last error // how the last command ended
	for pause, wait := time.Duration(0), firstPause; ; {
		began := clock.System().Now()
		err := x.lead(ctx, st, pause)
		code, ended := errors.AsType[kit.CodeError](err)
		_, signal := errors.AsType[*kit.InterruptedError](err)
		lost := errors.Is(err, supervise.ErrLost) || errors.Is(err, supervise.ErrWatchdog)
		switch {
		case signal && last != nil: // between two commands
			return last
		case !x.restart || x.ending || ctx.Err() != nil || !ended && !lost:
			return err
		case lost:
			last, pause = nil, time.Second
			x.Console.Note("%v; waiting to lead again", err)
			continue
		}
		if clock.System().Now().Sub(began)-pause > time.Minute {
			wait = firstPause
		}
		x.Console.Note("the command ended with status %d; starting it again in %v, in a new epoch", int(code), wait)
		last, pause, wait = err, wait, min(2*wait, 30*time.Second)
	}
}

// firstPause is how long --restart waits at first.
const firstPause = 250 * time.Millisecond

func (x *execution) options() error {
	x.leader = x.election()
	if err := x.leader.Validate(); err != nil {
		return kit.Usage("%w", err)
	}
	v := x.leader.Validity
	// A command that is told to end works on until the next look. So exec looks a little more often
	// than Run, which takes a thirtieth, and the next command begins within half a second of SIGTERM.
	x.leader.Poll = cmp.Or(x.poll, max(v/40, 75*time.Millisecond))
	if x.grace == 0 {
		x.grace = v / 5
	}
	x.group = x.group || x.partitions != 0
	// A heartbeat must come before the command is told to end.
	if most := v - v/10 - v*2/5; x.grace >= most {
		return kit.Usage("--grace %v must be less than %v: a term of --validity %v lasts %v without a heartbeat, and the next one comes after %v",
			x.grace, most, v, v-v/10, v*2/5)
	}
	return nil
}

// outcome is the error with which exec ends.
func (x *execution) outcome(err error) error {
	var start *supervise.StartError
	switch {
	case errors.Is(err, errBusy):
		x.Console.Note("fencepost: %v", err)
		return kit.CodeError(kit.ExitBusy)
	case errors.Is(err, supervise.ErrLost), errors.Is(err, supervise.ErrWatchdog):
		x.Console.Note("fencepost: %v", err)
		return kit.CodeError(kit.ExitLost)
	case errors.Is(err, supervise.ErrUnsupported):
		return fmt.Errorf("exec does not work on this system: %w", err)
	case errors.As(err, &start):
		x.Console.Note("fencepost: %v", err)
		return kit.CodeError(kit.ExitNotRunnable)
	}
	return err
}

// receiving calls receive with the signals that come until stop is called.
func (x *execution) receiving(receive func(syscall.Signal)) (stop func()) {
	over, handled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(handled)
		for {
			select {
			case <-over:
				return
			case s := <-x.signals:
				receive(kit.SignalNumber(s))
			}
		}
	}()
	return func() { close(over); <-handled }
}

// lead waits for the lead, and runs the command for one term.
func (x *execution) lead(parent context.Context, st store.Store, pause time.Duration) error {
	ctx, end := context.WithCancelCause(context.WithoutCancel(parent))
	defer end(nil)
	r := &running{execution: x, end: end, done: ctx.Done(), hard: make(chan struct{})}
	stop := x.receiving(r.receive)
	defer func() {
		stop()
		x.ending = x.ending || r.ended()
	}()
	// A signal that came just before x.signals was set up is known here only.
	defer context.AfterFunc(parent, func() { r.giveUp(context.Cause(parent)) })()
	if err := clock.Sleep(ctx, clock.System(), pause); err != nil {
		return r.verdict(ctx, err)
	}
	if err := x.prepare(ctx, st, r); err != nil {
		return r.verdict(ctx, err)
	}
	opts := x.leader
	opts.Hooks.Leader = func(rec leader.Record) { r.met(rec, opts.Identity) }
	opts.Hooks = x.Gauges.Leader("exec", opts.Hooks)
	e, err := leader.New(st, fencepost.LockPrefix, &opts)
	if err != nil {
		return err
	}
	if x.wait > 0 {
		patience := clock.System().AfterFunc(x.wait, func() { r.giveUp(fmt.Errorf("%w, also after %v", errBusy, x.wait)) })
		defer patience.Stop()
	}
	err = e.Run(ctx, r.work)
	return r.verdict(ctx, err)
}

// prepare checks a store in which nobody has led yet, and whether somebody leads now.
func (x *execution) prepare(ctx context.Context, st store.Store, r *running) error {
	e, err := leader.New(st, fencepost.LockPrefix, &x.leader)
	if err != nil {
		return err
	}
	rec, err := e.Leader(ctx)
	switch {
	case errors.Is(err, leader.ErrNoLeader):
		r.seen = rec.Epoch
	case err != nil:
		return err
	case x.noWait:
		return busy(rec)
	}
	if rec.Epoch > 0 {
		return nil
	}
	if _, err := manifest.ReadFormat(ctx, st, nil); err == nil {
		return nil // it was probed when the log was made
	}
	o := x.Aloud(x.Probing(x.url))
	o.UploadSize = 1 // nothing is uploaded here
	_, err = probe.Run(ctx, st, o)
	return err
}

func busy(r leader.Record) error {
	return fmt.Errorf("%w: %s, in epoch %d since %s", errBusy, r.Holder, r.Epoch, r.Acquired.Local().Format(time.DateTime))
}

// command is the command for one epoch. Its deadline is told in a file, beside the work: a disk that hangs, or a pipe that the
// command has put there, would keep the lead for ever. The command may rely on the first one. So that is waited for, until no
// command may start any more.
func (x *execution) command(epoch fence.Epoch, to *deadlines, grace time.Duration, signals <-chan syscall.Signal) *supervise.Command {
	return &supervise.Command{
		Path: x.path, Args: x.argv, Env: x.environment(epoch, to.file), Watchdog: []string{"fencepost", kit.WatchdogVerb}, Grace: grace, Signals: signals,
		Renewed: func(deadline supervise.Moment) {
			write := func() error {
				err := writeDeadline(to.file, epoch, deadline, grace)
				if err != nil {
					x.Console.Note("fencepost: %v", err)
				}
				return err
			}
			if to.there {
				to.lines.Do(1, write)
				return
			}
			written := make(chan bool, 1)
			go func() { written <- write() == nil }()
			select {
			case to.there = <-written:
			case <-time.After(deadline.Sub(supervise.Now())):
			}
		},
	}
}

// environment is that of the command.
func (x *execution) environment(epoch fence.Epoch, file string) []string {
	return kit.Environment("FENCEPOST_URL="+x.url, "FENCEPOST_EPOCH="+strconv.FormatUint(uint64(epoch), 10),
		"FENCEPOST_HOLDER="+x.leader.Identity, "FENCEPOST_DEADLINE_FILE="+file)
}
