// Package gate has the verbs gate set, gate get and gate run.
package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	return kit.Parent("gate VERB ...", "let a script write only if its epoch is the highest",
		`A gate remembers the highest epoch that has passed, and refuses lower ones with exit
status 77. So a leader that was paused and replaced changes nothing when it wakes up.
The epoch is $FENCEPOST_EPOCH, which fencepost exec sets, or that of --epoch.`,
		setCommand(k), getCommand(k), runCommand(k))
}

// epochFlag is --epoch, with $FENCEPOST_EPOCH as its default.
func epochFlag(fl *pflag.FlagSet) func() (fence.Epoch, error) {
	text := fl.String("epoch", "", "the epoch (default $FENCEPOST_EPOCH)")
	return func() (fence.Epoch, error) {
		from, value := "--epoch", *text
		if value == "" {
			from, value = "FENCEPOST_EPOCH", os.Getenv("FENCEPOST_EPOCH")
		}
		if value == "" {
			return 0, kit.Usage("there is no epoch: run this under fencepost exec, which sets FENCEPOST_EPOCH, or give --epoch")
		}
		e, err := strconv.ParseUint(value, 10, 64)
		if err != nil || e == 0 || fence.Epoch(e) > fence.MaxEpoch {
			return 0, kit.Usage("%s is %q; it must be a number from 1 to %d", from, value, fence.MaxEpoch)
		}
		return fence.Epoch(e), nil
	}
}

func setCommand(k *kit.Kit) *cobra.Command {
	var epoch func() (fence.Epoch, error)
	c := &cobra.Command{
		Use:   "set [--epoch N] [--json] URL KEY [VALUE]",
		Short: "write a small object that no earlier epoch can overwrite",
		Long: `Set writes VALUE, or standard input, into the object KEY. Only this epoch or a later one
can overwrite it: a pointer to the newest version of something, a watermark. It has at
most 1 MiB. Gate get prints it. The format is that of a register in docs/format.md.
KEY must be no name of a log or a group, such as data/x, nor lead into one.

It needs the right to read and to write KEY.`,
		Example: "fencepost gate set s3://bucket/report latest report-2026-11.csv",
		Args:    kit.WantArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := epoch()
			if err != nil {
				return err
			}
			var value []byte
			if len(args) == 3 {
				value = []byte(args[2])
			} else if value, err = kit.Patiently(cmd.Context(), k, "reading the value from standard input, which has not ended yet", func() ([]byte, error) {
				return io.ReadAll(io.LimitReader(k.In, register.MaxValue+1))
			}); err != nil {
				return err
			}
			if len(value) > register.MaxValue {
				return kit.Usage("the value has more than %d bytes. Put it into an object of its own, and that object's name into the gate", register.MaxValue)
			}
			st, err := k.Store(cmd.Context(), args[0], true)
			if err != nil {
				return err
			}
			if err := k.Refused(Set(cmd.Context(), st, args[1], e, value, 10*time.Second)); err != nil || !k.JSON {
				return err
			}
			return k.Print(struct {
				Epoch fence.Epoch `json:"epoch"`
				Bytes int         `json:"bytes"`
			}{e, len(value)})
		},
	}
	epoch = epochFlag(c.Flags())
	k.JSONFlag(c)
	return c
}

// Set opens a register and sets its value. If another process does so in the same epoch meanwhile, it
// does both again: neither of the two is a zombie, and the value of either is right. It does so only for a
// moment: after a pause the other's value may be newer.
func Set(ctx context.Context, st store.Store, key string, e fence.Epoch, value []byte, moment time.Duration) error {
	c := clock.System()
	for began := c.Now(); ; {
		r, err := register.Open(ctx, st, key, fence.NewToken(e), nil)
		if err == nil {
			err = r.Set(ctx, value)
		}
		switch refused, ok := errors.AsType[*fence.FencedError](err); {
		case errors.Is(err, register.ErrOptions): // such as a key of a log's own
			return kit.Usage("%w", err)
		case !ok || refused.By != e:
			return err
		case c.Now().Sub(began) > moment: // but this is no zombie
			return fmt.Errorf("others set %s in epoch %d too, perhaps later: see what it holds, and set it again if that is not right", key, e)
		}
	}
}

func getCommand(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "get [--json] URL KEY",
		Short: "print what gate set has written",
		Long: `Get prints the value in the object KEY, exactly as it was set. It needs the right to
read.`,
		Example: "fencepost gate get s3://bucket/report latest",
		Args:    kit.WantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := k.Store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			s, err := register.Read(cmd.Context(), st, args[1], nil)
			switch {
			case errors.Is(err, store.ErrNotFound):
				return fmt.Errorf("nobody has set %s yet: %w", args[1], err)
			case err != nil:
				return err
			case k.JSON:
				return k.Print(struct {
					Epoch fence.Epoch `json:"epoch"`
					Time  time.Time   `json:"time"`
					Value []byte      `json:"base64"`
				}{s.Epoch, s.Time, s.Value})
			}
			return k.Write(s.Value)
		},
	}
	k.JSONFlag(c)
	return c
}

func runCommand(k *kit.Kit) *cobra.Command {
	var epoch func() (fence.Epoch, error)
	var wait time.Duration
	c := &cobra.Command{
		Use:   "run [--epoch N] [--wait D] FILE -- COMMAND [ARG...]",
		Short: "run a command if no later epoch was here",
		Long: `Run keeps the highest epoch in FILE on this machine, and runs COMMAND if its epoch is
not lower. One such command runs at a time; another one waits until it has ended, and
until all has ended that it has left in the background: that may still write. It is for
the machine that is written to, such as the one behind ssh:

  ssh db fencepost gate run --epoch $FENCEPOST_EPOCH /var/lib/import.gate -- import

The exit status is that of COMMAND; 77 if its epoch is too low; 75 if another command
still runs after --wait; 127 if there is no such COMMAND, and 126 if it cannot be run.
FILE must stay, and must not be on a network file system. Whoever may read FILE can hold
COMMAND up: it is made so that only you can.`,
		Example: "fencepost gate run /var/lib/import.gate -- ./import.sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash != 1 || len(args) < 2 {
				return kit.Usage("gate run takes %s; see fencepost help gate run", "[--epoch N] [--wait D] FILE -- COMMAND [ARG...]")
			}
			e, err := epoch()
			if err != nil {
				return err
			}
			return pass(cmd.Context(), k, args[0], e, wait, args[1:])
		},
	}
	epoch = epochFlag(c.Flags())
	kit.SpanVar(c.Flags(), &wait, "wait", "", kit.Positive, "how long to wait for another command (default as long as it takes)")
	return c
}

// waitLock waits until no other command holds the file of a gate.
func waitLock(ctx context.Context, k *kit.Kit, f *os.File, wait time.Duration) error {
	began, said := time.Now(), false
	for {
		held, err := lockFile(f)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if held || err != nil {
			return err
		}
		if wait > 0 && time.Since(began) > wait {
			k.Console.Note("fencepost: another command, or what it has left in the background, holds %s, also after %v", f.Name(), wait)
			return kit.CodeError(kit.ExitBusy)
		}
		if !said && time.Since(began) > k.Patience {
			k.Console.Note("waiting for another command, which holds %s, or for what one has left in the background", f.Name())
			said = true
		}
		if err := clock.Sleep(ctx, clock.System(), 20*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}

func pass(ctx context.Context, k *kit.Kit, name string, e fence.Epoch, wait time.Duration, argv []string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) // whoever may open it may lock it
	if err != nil {
		return err
	}
	defer f.Close()
	if err := waitLock(ctx, k, f, wait); err != nil {
		return fmt.Errorf("locking %s: %w", name, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return err
	}
	highest, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	switch {
	case err != nil && len(b) > 0:
		return fmt.Errorf("%s is not the file of a gate: it should have a number of 20 digits. If it is damaged, write the highest epoch into it that can have passed", name)
	case fence.Epoch(highest) > e:
		return k.Refused(&fence.FencedError{Epoch: e, By: fence.Epoch(highest), Key: name})
	case fence.Epoch(highest) < e:
		// All digits at once and in place: the lock is that of this file.
		if _, err = f.WriteAt(fmt.Appendf(nil, "%020d\n", e), 0); err != nil {
			return err
		}
	}
	// Also if the epoch was there: who has written it may have died before it was on the disk.
	if err := keep(f); err != nil {
		return fmt.Errorf("writing %s to the disk: %w", name, err)
	}
	return runHolding(ctx, k, f, argv)
}

// keep returns when a file and its name are on the disk. Tests replace it.
var keep = func(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	name, err := filepath.EvalSymlinks(f.Name())
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// runHolding runs a command that holds the lock of f, too: so it stays locked if this process is killed.
func runHolding(ctx context.Context, k *kit.Kit, f *os.File, argv []string) error {
	hangUps := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangUps, syscall.SIGHUP)
		defer signal.Stop(hangUps)
	}
	if k.HandOver != nil {
		k.HandOver()
	}
	if ctx.Err() != nil { // a signal came meanwhile, and from now on SIGHUP does not end ctx
		return context.Cause(ctx)
	}
	c := exec.CommandContext(context.Background(), argv[0], argv[1:]...) // it gets the terminal's signals itself
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	left, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer left.Close()
	c.ExtraFiles = []*os.File{f, theirs}
	err = c.Start()
	_ = theirs.Close()
	if err == nil {
		// A terminal sends Ctrl-C to the command, too. SIGTERM comes to this process alone.
		stop := context.AfterFunc(ctx, func() {
			if cause, ok := errors.AsType[*kit.InterruptedError](context.Cause(ctx)); ok && cause.Signal == syscall.SIGTERM {
				_ = c.Process.Signal(cause.Signal)
			}
		})
		// The command decides what SIGHUP means. If the whole group gets it, the command gets it twice.
		over := make(chan struct{})
		go func() {
			for {
				select {
				case s := <-hangUps:
					_ = c.Process.Signal(s)
				case <-over:
					return
				}
			}
		}()
		err = c.Wait()
		close(over)
		stop()
		// Whoever holds the lock holds the other end of the pipe, too.
		_ = left.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := left.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			k.Console.Note("the command has ended, but what it has left in the background holds %s: no other command runs before that has ended, too", f.Name())
		}
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return kit.CodeError(statusOf(exit))
	}
	if err != nil {
		return k.CannotRun(err)
	}
	return nil
}
