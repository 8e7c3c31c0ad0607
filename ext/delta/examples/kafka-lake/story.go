//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
)

const (
	// validity of a member of the group, flush and rows of a file, and grace of the logs. They are short
	// so that the story is short.
	validity = 2 * time.Second
	flush    = 400 * time.Millisecond
	rows     = 2000
	grace    = time.Second
)

// story is the narrator. It runs the producer and the workers, kills and freezes some of them, and checks the
// table.
type story struct {
	config
	out         io.Writer
	self        string // this program
	logs, table store.Store
	start       time.Time
	procs       map[string]*worker
	feeds       sync.WaitGroup
	ledger      *ledger
	found       *deltaTable
	verdict     verdict // of the last comparison

	mu     sync.Mutex
	report *report
	noise  strings.Builder // what workers wrote to their standard error
}

// Write implements io.Writer for the standard error of the workers.
func (s *story) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noise.Write(p)
}

// worker is a process.
type worker struct {
	*exec.Cmd
	in io.WriteCloser // its commands
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// tell runs the whole story and returns the first promise that was broken.
func tell(ctx context.Context, c config, out io.Writer) (err error) {
	if c.partitions < 1 || c.rate < 1 {
		return errors.New("-partitions and -rate must be at least 1")
	}
	if c.store == "" {
		dir, err := os.MkdirTemp("", "fencepost-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		c.store = "file://" + dir
	}
	which := "the brokers " + c.brokers
	if c.brokers == "" {
		var stop func()
		if c.brokers, stop, err = embedded(); err != nil {
			return err
		}
		defer stop()
		which = "a Kafka in this process, at " + c.brokers
	}
	s, err := newStory(ctx, c, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deleteTopic(context.WithoutCancel(ctx), s.brokers, s.topic)) }()
	fmt.Fprintf(out, "The topic %s with %d partitions is in %s.\nThe table is in %s, the logs are in %s.\n\n", s.topic, s.partitions, which, s.table.Traits().Name, s.logs.Traits().Name)
	defer s.stop()
	return s.told(s.acts(ctx))
}

// newStory opens the stores and creates the topic. Each run has a place and a topic of its own, so the
// story can be repeated.
func newStory(ctx context.Context, c config, out io.Writer) (s *story, err error) {
	c.topic = "kafka-lake-" + uuid.NewString()[:8]
	if c.store, err = below(c.store, c.topic); err != nil {
		return nil, err
	}
	s = &story{config: c, out: out, start: time.Now(), procs: map[string]*worker{}, ledger: newLedger(c.partitions), report: newReport(c.partitions)}
	if s.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if s.logs, s.table, err = openStores(ctx, s.store); err != nil {
		return nil, err
	}
	if !s.logs.Traits().MultiProcess {
		return nil, fmt.Errorf("%s cannot be used here: it lives in the memory of one process, and the workers are processes of their own; use file:///dir or s3://bucket/prefix", c.store)
	}
	s.found = newDeltaTable(s.table)
	return s, createTopic(ctx, s.brokers, s.topic, s.partitions)
}

// told adds what the workers have reported to an error.
func (s *story) told(err error) error {
	if err == nil {
		return nil
	}
	s.stop()
	return fmt.Errorf("%w\nThe workers reported:\n%s\n%s", err, strings.Join(s.report.failed, "\n"), s.noise.String())
}

// acts is what happens.
func (s *story) acts(ctx context.Context) error {
	producing, enough := context.WithCancel(ctx)
	defer enough()
	produced := make(chan error, 1)
	go func() { produced <- produce(producing, s.brokers, s.topic, s.rate, s.ledger) }()

	for _, name := range []string{"ada", "bob", "cyd"} {
		if err := s.spawn(name); err != nil {
			return err
		}
	}
	if err := s.shared(ctx, "ada", "bob", "cyd"); err != nil {
		return err
	}
	s.say("three workers share the partitions: %s. They copy %d messages a second, and publish", s.shares(), s.rate)
	if err := s.look(ctx); err != nil {
		return err
	}
	if err := s.kill(ctx); err != nil {
		return err
	}
	frozen, err := s.freeze(ctx)
	if err != nil {
		return err
	}
	if err := s.spawn("dan"); err != nil {
		return err
	}
	if err := s.shared(ctx, "ada", "dan"); err != nil {
		return err
	}
	s.say("dan joins, and ada hands over half in good order: %s", s.shares())
	if err := s.wake(ctx, frozen); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	enough()
	if err := <-produced; err != nil {
		return err
	}
	n, err := s.ledger.count()
	if err != nil {
		return err
	}
	s.say("nothing more is produced. Kafka has acknowledged %d messages", n)
	if err := s.drained(ctx, n); err != nil {
		return err
	}
	s.stop()
	return s.check(ctx)
}

// kill kills a worker between the upload of a file and its commit.
func (s *story) kill(ctx context.Context) error {
	m, err := s.command(ctx, "bob", "kill", "dies")
	if err != nil {
		return err
	}
	began := time.Now()
	_ = s.procs["bob"].Wait() // killed: that is its error
	s.say("bob has uploaded %s, and is killed before it commits it (SIGKILL)", m.File)
	if err := s.shared(ctx, "ada", "cyd"); err != nil {
		return err
	}
	s.say("after %.1f s the others have its partitions, and begin where its last commit ends: %s", time.Since(began).Seconds(), s.shares())
	return nil
}

// freeze freezes a worker at the same place.
func (s *story) freeze(ctx context.Context) (event, error) {
	m, err := s.command(ctx, "cyd", "freeze", "freezes")
	if err != nil {
		return m, err
	}
	began := time.Now()
	s.say("cyd has uploaded %s, and is frozen while its commit is on the way (SIGSTOP)", m.File)
	if err := s.shared(ctx, "ada"); err != nil {
		return m, err
	}
	s.say("after %.1f s ada has all partitions", time.Since(began).Seconds())
	return m, nil
}

// wake wakes the frozen worker, whose commit then reaches the store.
func (s *story) wake(ctx context.Context, frozen event) error {
	if err := s.procs["cyd"].Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	m, err := s.moment(ctx, "cyd", "answered")
	if err != nil {
		return err
	}
	if !m.Refused || m.Key != frozen.Key {
		return fmt.Errorf("broken promise: the zombie's commit %s was answered: %s", m.Key, m.Text)
	}
	s.say("cyd wakes up (SIGCONT). Its commit reaches the store: %s → 412 Precondition Failed", m.Key)
	if err := s.shared(ctx, "ada", "cyd", "dan"); err != nil {
		return err
	}
	s.say("cyd has joined again, as a new member: %s", s.shares())
	return nil
}

// command tells a worker what to do at its next commit, and waits until it has.
func (s *story) command(ctx context.Context, name, command, what string) (event, error) {
	s.mu.Lock()
	delete(s.report.moments, name+" "+what)
	s.mu.Unlock()
	if _, err := fmt.Fprintln(s.procs[name].in, command); err != nil {
		return event{}, err
	}
	return s.moment(ctx, name, what)
}

// moment waits until a worker has told something.
func (s *story) moment(ctx context.Context, name, what string) (e event, err error) {
	err = s.wait(ctx, fmt.Sprintf("%s never %s", name, what), func() (ok bool) {
		e, ok = s.report.moments[name+" "+what]
		return ok
	})
	return e, err
}

// wait waits until something holds.
func (s *story) wait(ctx context.Context, otherwise string, holds func() bool) error {
	for {
		s.mu.Lock()
		ok := holds()
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", otherwise, context.Cause(ctx))
		}
	}
}

// shared waits until the workers, and nobody else, hold all partitions in fair shares.
func (s *story) shared(ctx context.Context, names ...string) error {
	var ended string
	err := s.wait(ctx, fmt.Sprintf("%v do not share the partitions", names), func() bool {
		for _, name := range names {
			if s.report.ended[name] {
				ended = name
				return true
			}
		}
		shares, sum := s.report.shares(), 0
		least, most := s.partitions, 0
		for _, name := range names {
			sum, least, most = sum+shares[name], min(least, shares[name]), max(most, shares[name])
		}
		return sum == s.partitions && most-least <= 1
	})
	if ended != "" {
		return &endedError{ended}
	}
	return err
}

// endedError: a worker has ended that nobody has killed.
type endedError struct{ worker string }

func (e *endedError) Error() string { return e.worker + " has ended by itself" }

func (s *story) shares() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.text()
}

// spawn starts a worker.
func (s *story) spawn(name string) error {
	cmd := exec.Command(s.self, "-worker", name, "-staged", "-brokers", s.brokers, "-topic", s.topic, "-store", s.store,
		"-flush", flush.String(), "-rows", fmt.Sprint(rows), "-validity", validity.String(), "-grace", grace.String())
	cmd.Stderr = s
	in, err := cmd.StdinPipe() // closed when this process ends, which ends the worker
	if err != nil {
		return err
	}
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.procs[name] = &worker{cmd, in}
	s.feeds.Go(func() {
		for sc := bufio.NewScanner(lines); sc.Scan(); {
			var e event
			if json.Unmarshal(sc.Bytes(), &e) == nil { // a killed worker may break off a line
				s.mu.Lock()
				s.report.add(e)
				s.mu.Unlock()
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.report.ended[name] = true
	})
	return nil
}

// stop ends all workers in good order, and waits for them.
func (s *story) stop() {
	for _, w := range s.procs {
		_ = w.Process.Signal(syscall.SIGCONT)
		_ = w.Process.Signal(syscall.SIGTERM)
	}
	s.feeds.Wait()
	for name, w := range s.procs {
		_ = w.Wait()
		delete(s.procs, name)
	}
}

// drained waits until the published table has so many messages.
func (s *story) drained(ctx context.Context, n int) error {
	for {
		if err := s.found.read(ctx); err != nil {
			return err
		}
		if s.found.rows() >= n {
			return nil
		}
		select {
		case <-time.After(flush / 4):
		case <-ctx.Done():
			return fmt.Errorf("the table has %d of %d messages: %w", s.found.rows(), n, context.Cause(ctx))
		}
	}
}

// look reads the table while everything is going on.
func (s *story) look(ctx context.Context) error {
	if err := s.drained(ctx, 1); err != nil {
		return err
	}
	if err := s.found.prefixes(); err != nil {
		return fmt.Errorf("broken promise: %w", err)
	}
	s.say("a reader that knows only Delta Lake finds %d messages in version %d", s.found.rows(), len(s.found.versions)-1)
	return nil
}

// publish publishes once more, so that the table has all that was committed.
func (s *story) publish(ctx context.Context) error {
	p, err := publisher(ctx, s.logs, s.table, s.partitions, &delta.Options{Name: "kafka-lake"})
	if err != nil {
		return err
	}
	r, err := p.Publish(ctx)
	return errors.Join(err, r.Err())
}
