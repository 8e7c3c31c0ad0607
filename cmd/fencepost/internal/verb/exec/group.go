package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

var errEnds = errors.New("fencepost exec ends")

// sharing is exec in a group: a command for each partition that this process owns.
type sharing struct {
	*execution
	end  context.CancelCauseFunc // makes this member leave in good order
	done <-chan struct{}         // closed by end
	hard chan struct{}           // closed: the commands are told to end now

	mu       sync.Mutex
	term     terminations
	told     bool                          // hard is closed
	hup      bool                          // SIGHUP was received
	commands map[int]chan<- syscall.Signal // of each partition
}

// share joins the group and runs the command for each partition that it gets, until a signal ends
// that. A session that is lost is followed by another.
func (x *execution) share(parent context.Context, st store.Store) error {
	ctx, end := context.WithCancelCause(context.WithoutCancel(parent))
	defer end(nil)
	s := &sharing{execution: x, end: end, done: ctx.Done(), hard: make(chan struct{}), commands: map[int]chan<- syscall.Signal{}}
	defer x.receiving(s.receive)()
	// A signal that came just before x.signals was set up is known here only.
	defer context.AfterFunc(parent, func() { end(context.Cause(parent)) })()
	for {
		err := s.session(ctx, st)
		lost := (*group.EndError)(nil)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &lost) && !errors.Is(err, group.ErrHung):
			x.Console.Note("%s; joining again", kit.Line(err))
		default:
			return err // nil if somebody has drained this member
		}
		if clock.Sleep(ctx, clock.System(), time.Second) != nil {
			return context.Cause(ctx)
		}
	}
}

func (s *sharing) session(ctx context.Context, st store.Store) error {
	opts := &group.Options{
		Partitions: s.partitions, Base: s.base, Identity: s.leader.Identity, Logger: s.Log.Named("group"), Probe: s.Aloud(s.Probing(s.url)),
		Hooks: s.Gauges.Group(group.Hooks{
			Opened: func(o group.Opening) {
				s.Console.Note("partition %d is ours, in epoch %d", o.Partition, o.Token.Epoch())
			},
			Closed: func(c group.Closing) {
				if c.Err != nil && c.Cause == nil {
					s.Console.Note("partition %d: %s", c.Partition, kit.Line(c.Err))
				}
			},
		}),
	}
	if s.validitySet {
		opts.Validity = s.leader.Validity
	}
	g, err := group.Join(ctx, st, opts)
	if err != nil {
		return err
	}
	return cmp.Or(g.Run(ctx, s.work), context.Cause(ctx))
}

// receive passes a signal on to all commands. SIGTERM makes the member leave in good order; a
// second one ends the commands at once.
func (s *sharing) receive(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGQUIT {
		s.end(&kit.InterruptedError{Signal: sig})
		if s.term.add() < 2 {
			return
		}
		if !s.told {
			s.told = true
			close(s.hard)
			return
		}
	}
	s.hup = s.hup || sig == syscall.SIGHUP
	for _, c := range s.commands {
		select {
		case c <- sig:
		default:
		}
	}
	if sig == syscall.SIGHUP && len(s.commands) == 0 {
		s.end(&kit.InterruptedError{Signal: sig})
	}
}

// work runs the command for one partition. With --restart the group opens the partition again, in a new epoch, also if the command
// has not failed.
func (s *sharing) work(ctx context.Context, p *group.Partition) error {
	signals := make(chan syscall.Signal, 16)
	if !s.begin(p, signals) {
		// This member leaves. The partition is its own until another is ready, but no command begins.
		now, cancel := until(ctx, s.hard)
		<-now.Done()
		cancel()
		return errEnds
	}
	file := filepath.Join(s.dir, fmt.Sprintf("deadline.%d", p.Number()))
	status, err := s.once(ctx, p, newDeadlines(file), signals)
	if status.Signal == syscall.SIGHUP {
		s.hungUp()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case status.Exit() != 0:
		return fmt.Errorf("the command ended with status %d", status.Exit())
	case s.restart:
		s.Console.Note("partition %d: the command ended with status 0; starting it again, in a new epoch", p.Number())
		return group.ErrAgain
	}
	return nil
}

// hungUp ends this member if it has got SIGHUP too: its terminal has gone.
func (s *sharing) hungUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hup {
		s.end(&kit.InterruptedError{Signal: syscall.SIGHUP})
	}
}

// begin lets a command get signals, unless this member leaves.
func (s *sharing) begin(p *group.Partition, signals chan<- syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
		return false
	default:
	}
	s.commands[p.Number()] = signals
	return true
}

func (s *sharing) once(ctx context.Context, p *group.Partition, file *deadlines, signals chan syscall.Signal) (supervise.Status, error) {
	ctx, cancel := until(ctx, s.hard)
	defer cancel()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.commands, p.Number())
	}()
	grace := s.grace
	if !s.graceSet {
		grace = p.Held() / 5 // the group may have another validity than --validity
	}
	c := s.command(p.Token().Epoch(), file, grace, signals)
	c.Held, c.Bounded, c.NoInput, c.Env = p.Held, s.graceSet, true, append(c.Env, "FENCEPOST_PARTITION="+strconv.Itoa(p.Number()))
	return supervise.Run(ctx, c)
}

// until returns a context that also ends when over is closed.
func until(ctx context.Context, over <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// deadlines is the file that tells a command its deadline.
type deadlines struct {
	file  string
	lines sink.Queue
	there bool // it was written once
}

func newDeadlines(file string) *deadlines {
	return &deadlines{file: file, lines: sink.Queue{Lost: func(int) error { return nil }}}
}

// newDirectory makes the directory of these files, in which one can be written.
func newDirectory() (string, error) {
	dir, err := os.MkdirTemp("", "fencepost-exec-")
	if err == nil {
		dir, err = filepath.Abs(dir) // the command may run elsewhere
	}
	if err != nil {
		return "", fmt.Errorf("no place for the file that tells the command its deadline: %w; set TMPDIR to a directory that can be written", err)
	}
	err = os.Chmod(dir, 0o755) // the command may run as somebody else
	if try := filepath.Join(dir, "try"); err == nil {
		err = os.WriteFile(try, nil, 0o600)
		_ = os.Remove(try)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// removeDirectory waits for it for a moment only.
func removeDirectory(dir string) {
	var last sink.Queue // what waits in the other one may wait for ever
	last.Do(1, func() error { _ = os.RemoveAll(dir); return nil })
}
