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

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
)

const partitions = 64

// story is the narrator. It starts the workers, kills, freezes and stops some of them, and checks what
// they report against the logs.
type story struct {
	out   io.Writer
	st    store.Store
	start time.Time
	procs map[string]*exec.Cmd
	feeds sync.WaitGroup

	mu     sync.Mutex
	report report
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// tell runs the whole story and returns the first promise that was broken.
func tell(ctx context.Context, url string, out io.Writer) (err error) {
	if url == "" {
		dir, err := os.MkdirTemp("", "fencepost-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		url = "file://" + dir
	}
	if strings.HasPrefix(url, "mem:") {
		return fmt.Errorf("%s cannot be used here: it lives in the memory of one process, and the workers are processes of their own; use file:///dir or s3://bucket/prefix", url)
	}
	// Each run has a group of its own, so the story can be repeated on one bucket.
	prefix := "group-" + uuid.NewString()[:8]
	st, err := openStore(ctx, url, prefix)
	if err != nil {
		return err
	}
	s := &story{out: out, st: st, start: time.Now(), procs: map[string]*exec.Cmd{}, report: newReport()}
	fmt.Fprintf(out, "The group is in %s: %d partitions, each with a log of its own.\n\n", st.Traits().Name, partitions)
	// The first member creates the group, and probes the store once for all logs.
	g, err := group.Join(ctx, st, &group.Options{Partitions: partitions, Validity: validity, Identity: "founder"})
	if err != nil {
		return err
	}
	if err := g.Leave(ctx); err != nil {
		return err
	}
	defer s.stop()
	if err := s.acts(ctx, url, prefix); err != nil {
		return err
	}
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.check(ctx, st, s)
}

// acts is what happens.
func (s *story) acts(ctx context.Context, url, prefix string) error {
	names := []string{"ada", "bob", "cyd", "dan", "eve"}
	for _, name := range names {
		if err := s.spawn(url, prefix, name); err != nil {
			return err
		}
	}
	if err := s.shared(ctx, names...); err != nil {
		return err
	}
	s.say("five workers share them: %s", s.shares())

	began := time.Now()
	if err := s.procs["bob"].Process.Kill(); err != nil {
		return err
	}
	s.say("bob is killed (SIGKILL)")
	if err := s.shared(ctx, "ada", "cyd", "dan", "eve"); err != nil {
		return err
	}
	s.say("after %.1f s the others have his partitions: %s", time.Since(began).Seconds(), s.shares())

	began = time.Now()
	if err := s.procs["cyd"].Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.say("cyd is frozen (SIGSTOP), as by a GC pause or a sleeping VM")
	if err := s.shared(ctx, "ada", "dan", "eve"); err != nil {
		return err
	}
	s.say("after %.1f s the others have her partitions: %s", time.Since(began).Seconds(), s.shares())

	if err := s.procs["cyd"].Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	s.say("cyd wakes up (SIGCONT), finds that her time is over, and joins under another name")
	for _, name := range []string{"fay", "gus"} {
		if err := s.spawn(url, prefix, name); err != nil {
			return err
		}
	}
	if err := s.shared(ctx, "ada", "cyd", "dan", "eve", "fay", "gus"); err != nil {
		return err
	}
	s.say("fay and gus have joined: %s", s.shares())

	if err := s.procs["ada"].Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	s.say("ada is told to stop (SIGTERM), and hands over in good order")
	if err := s.shared(ctx, "cyd", "dan", "eve", "fay", "gus"); err != nil {
		return err
	}
	s.say("the others have her partitions: %s", s.shares())
	return nil
}

// spawn starts a worker.
func (s *story) spawn(url, prefix, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-worker", name, "-store", url, "-prefix", prefix)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // closed when this process ends, which ends the worker
		return err
	}
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.procs[name] = cmd
	s.feeds.Go(func() {
		sc := bufio.NewScanner(lines)
		for sc.Scan() {
			var e event
			if json.Unmarshal(sc.Bytes(), &e) == nil { // a killed worker may break off a line
				s.mu.Lock()
				s.report.add(e)
				s.mu.Unlock()
			}
		}
	})
	return nil
}

// shared waits until the workers, and nobody else, hold all partitions in fair shares.
func (s *story) shared(ctx context.Context, names ...string) error {
	for {
		s.mu.Lock()
		shares, sum := s.report.shares(), 0
		least, most := partitions, 0
		for _, name := range names {
			sum, least, most = sum+shares[name], min(least, shares[name]), max(most, shares[name])
		}
		s.mu.Unlock()
		if sum == partitions && most-least <= 1 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%v do not share the partitions: %v: %w", names, shares, ctx.Err())
		}
	}
}

// shares tells who holds how many.
func (s *story) shares() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report.text()
}

// stop ends all workers in good order, and waits for them.
func (s *story) stop() {
	for _, cmd := range s.procs {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	s.feeds.Wait()
	for name, cmd := range s.procs {
		_ = cmd.Wait()
		delete(s.procs, name)
	}
}
