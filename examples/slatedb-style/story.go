//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// grace is how long the compactor keeps for slow readers what the log does not need any
// more. It is short here; the default is ten minutes.
const grace = manifest.MinGrace

// story is the narrator. It starts the nodes, freezes and wakes one of them, and checks
// what the nodes report against the log.
type story struct {
	out   io.Writer
	start time.Time
	nodes map[string]*exec.Cmd
	feeds sync.WaitGroup

	events chan event
	acked  map[uint64]event // acknowledged puts by offset, as the nodes report them
	by     map[string]int   // acknowledged puts of each node
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
	// Each run has a log of its own, so the story can be repeated on one bucket.
	prefix := "slatedb-style-" + uuid.NewString()[:8]
	st, err := openStore(ctx, url, prefix)
	if err != nil {
		return err
	}
	if !st.Traits().MultiProcess {
		return fmt.Errorf("%s cannot be used here: it lives in the memory of one process, and the nodes are processes of their own; use file:///dir or s3://bucket/prefix", url)
	}
	if _, err := manifest.Init(ctx, st, &manifest.InitOptions{Grace: grace}); err != nil {
		return err
	}
	s := &story{out: out, start: time.Now(), nodes: map[string]*exec.Cmd{}, events: make(chan event, 1024), acked: map[uint64]event{}, by: map[string]int{}}
	fmt.Fprintf(out, "The log is in %s. Three nodes compete for it, each a process of its own.\n\n", st.Traits().Name)
	defer s.stop()
	for _, name := range []string{"ada", "bob", "cyd"} {
		if err := s.spawn(url, prefix, name); err != nil {
			return err
		}
	}

	first, err := s.until(ctx, "leads", "")
	if err != nil {
		return err
	}
	s.say("%s leads in epoch %d and puts keys", first.Node, first.Epoch)
	if err := s.puts(ctx, first.Node, 60); err != nil {
		return err
	}
	if err := s.nodes[first.Node].Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.say("%d keys acknowledged. %s is frozen in the middle of its work (SIGSTOP), as by a GC pause or a sleeping VM", len(s.acked), first.Node)

	second, err := s.until(ctx, "leads", "")
	if err != nil {
		return err
	}
	s.say("%s leads in epoch %d: %s's lock lapsed after %v, %s deposed it, sealed %s's log, and found all %d keys there", second.Node, second.Epoch, first.Node, validity, second.Node, first.Node, second.Found)
	if err := s.puts(ctx, second.Node, 60); err != nil {
		return err
	}
	if err := s.compact(ctx, st); err != nil {
		return err
	}

	s.say("%s wakes up (SIGCONT), believes that it leads, and goes on to write", first.Node)
	if err := s.nodes[first.Node].Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	refused, err := s.until(ctx, "refused", first.Node)
	if err != nil {
		return err
	}
	s.say("%s is refused: %s → 412 Precondition Failed, it holds the seal of epoch %d. Nothing of it got in", first.Node, refused.Slot, refused.By)
	if err := s.puts(ctx, second.Node, 20); err != nil {
		return err
	}
	s.stop()
	return s.check(ctx, st, first, second, refused)
}

func (s *story) spawn(url, prefix, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-node", name, "-store", url, "-prefix", prefix)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // closed when this process ends, which ends the node
		return err
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.nodes[name] = cmd
	s.feeds.Go(func() {
		lines := bufio.NewScanner(events)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{Node: name, What: "error", Text: "said " + lines.Text()}
			}
			s.events <- e
		}
	})
	return nil
}

// stop kills all nodes, also frozen ones, and notes what they have told.
func (s *story) stop() {
	if s.nodes == nil {
		return
	}
	for _, cmd := range s.nodes {
		_ = cmd.Process.Kill() // fails if it has ended
	}
	go func() {
		s.feeds.Wait()
		close(s.events)
	}()
	for e := range s.events {
		_ = s.note(e)
	}
	for _, cmd := range s.nodes {
		_ = cmd.Wait() // killed: that is its error
	}
	s.nodes = nil
}

// note records an event.
func (s *story) note(e event) error {
	switch e.What {
	case "put":
		if old, twice := s.acked[e.Offset]; twice {
			return fmt.Errorf("broken promise: offset %d was acknowledged to %s and to %s", e.Offset, old.Node, e.Node)
		}
		s.acked[e.Offset] = e
		s.by[e.Node]++
	case "error":
		return fmt.Errorf("%s: %s", e.Node, e.Text)
	}
	return nil
}

// until waits for an event of a kind, from the given node or from any if node is empty.
func (s *story) until(ctx context.Context, what, node string) (event, error) {
	for {
		select {
		case e := <-s.events:
			if err := s.note(e); err != nil {
				return e, err
			}
			if e.What == what && (node == "" || e.Node == node) {
				return e, nil
			}
		case <-ctx.Done():
			return event{}, fmt.Errorf("waited in vain for somebody who %s: %w", what, ctx.Err())
		}
	}
}

// puts waits for n more acknowledged puts of a node.
func (s *story) puts(ctx context.Context, node string, n int) error {
	for want := s.by[node] + n; s.by[node] < want; {
		if _, err := s.until(ctx, "put", node); err != nil {
			return err
		}
	}
	return nil
}

// compact folds the log and prunes what is not needed any more.
func (s *story) compact(ctx context.Context, st store.Store) error {
	c, err := compactor.New(st, &compactor.Options{
		Leader: &leader.Options{Identity: "narrator", Validity: validity, Prune: leader.PruneOptions{Keep: 1}},
	})
	if err != nil {
		return err
	}
	pruned := map[string]int{}
	enough := func() bool { return pruned["data"] > 0 && pruned["manifest"] > 0 && pruned["lock"] > 0 }
	// A later pass deletes what the first one made unnecessary, once the grace period
	// is over by the store's clock. That clock may count in seconds.
	for pass := 0; pass < 10 && !enough(); pass++ {
		report, err := c.Once(ctx)
		if err != nil {
			return err
		}
		if pass == 0 {
			s.say("the compactor folds %d objects of the log, with %d records, into a segment", report.Folded, report.Records)
		}
		for kind, n := range report.Pruned {
			pruned[kind] += n
		}
		select {
		case <-time.After(grace / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !enough() {
		return fmt.Errorf("broken promise: of data, manifests and locks, something was not pruned: %v", pruned)
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(pruned)) {
		parts = append(parts, fmt.Sprintf("%d × %s", pruned[kind], kind))
	}
	s.say("and prunes what is not needed any more: %s. The seals stay", strings.Join(parts, ", "))
	return nil
}

// check compares the puts that nodes reported as acknowledged with the log.
func (s *story) check(ctx context.Context, st store.Store, first, second, refused event) error {
	pos, ok := layout.ParseDataKey(refused.Slot)
	if !ok || pos.Epoch != first.Epoch || refused.By != second.Epoch {
		return fmt.Errorf("broken promise: %s was refused at %q by epoch %d, not in its own epoch by %s", first.Node, refused.Slot, refused.By, second.Node)
	}
	next := uint64(0)
	err := replay(ctx, st, func(offset uint64, p put) error {
		e, acked := s.acked[offset]
		switch {
		case offset != next:
			return fmt.Errorf("broken promise: record %d follows record %d", offset, next)
		case p.Key != fmt.Sprintf("key-%05d", offset):
			return fmt.Errorf("broken promise: %s is in place %d", p.Key, offset)
		case acked && (e.Key != p.Key || e.Value != p.Value):
			return fmt.Errorf("broken promise: %s=%q was acknowledged at %d, %s=%q is there", e.Key, e.Value, offset, p.Key, p.Value)
		}
		delete(s.acked, offset)
		next++
		return nil
	})
	if err != nil {
		return err
	}
	if len(s.acked) > 0 {
		lost := slices.Min(slices.Collect(maps.Keys(s.acked)))
		return fmt.Errorf("broken promise: %d acknowledged keys are lost, the first is %s", len(s.acked), s.acked[lost].Key)
	}
	total := s.by[first.Node] + s.by[second.Node]
	s.say("a reader sees %d keys: each of the %d acknowledged, once, in order", next, total)
	return nil
}
