package main

import (
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
)

// frames writes records as append --format frames reads them.
func frames(records ...string) string {
	var b []byte
	for _, r := range records {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(r))), r...)
	}
	return string(b)
}

// TestCatSeparatesRecords: records that do not end in a newline are lines all the same,
// unless the raw bytes are asked for.
func TestCatSeparatesRecords(t *testing.T) {
	url := newLog(t, memURL(t))
	in := frames(`{"a":1}`, `{"a":2}`, "", "line\n")
	must(t, in, "append", "--format", "frames", url)
	for format, want := range map[string]string{
		"lines":  "{\"a\":1}\n{\"a\":2}\n\nline\n",
		"raw":    `{"a":1}{"a":2}` + "line\n",
		"frames": in,
	} {
		if got := must(t, "", "cat", "--format", format, url); got != want {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
	}
	if got, want := must(t, "", "cat", url), must(t, "", "cat", "--format", "lines", url); got != want {
		t.Errorf("by default: %q", got)
	}
}

// TestFollowWaitsForTheLog: who follows may come before the first writer, also to a
// directory that is not there yet.
func TestFollowWaitsForTheLog(t *testing.T) {
	for _, url := range []string{memURL(t), fileURL(t)} {
		ctx, cancel := context.WithCancel(t.Context())
		var out, errs buffer
		a := &kit.Kit{Out: &out, Err: &errs, Open: store.Open}
		ended := make(chan int, 1)
		go func() { ended <- runWith(ctx, a, []string{"cat", "--follow", url}) }()
		eventually(t, "it says that it waits", func() bool { return strings.Contains(errs.String(), "no log yet") })
		must(t, "a\nb\n", "append", newLog(t, url))
		eventually(t, "the records come", func() bool { return out.String() == "a\nb\n" })
		cancel()
		<-ended
		if strings.Count(errs.String(), "no log yet") != 1 {
			t.Error(errs.String())
		}
	}
}

// counted counts writes.
type counted struct {
	buffer
	writes int
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.buffer.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	return n, err
}

// TestFollowGathersRecords: many records that come at once are few writes, as each may be a
// system call.
func TestFollowGathersRecords(t *testing.T) {
	url := newLog(t, memURL(t))
	in := strings.Repeat("a line\n", 5000)
	must(t, in, "append", url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out counted
	var errs buffer
	a := &kit.Kit{Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int, 1)
	go func() { ended <- runWith(ctx, a, []string{"cat", "--follow", url}) }()
	eventually(t, "the records come", func() bool { return len(out.String()) == len(in) })
	cancel()
	<-ended
	if out.writes > 2500 {
		t.Errorf("%d records in %d writes", 5000, out.writes)
	}
}

// TestFollowThroughAnOutage: the store fails for some seconds. Cat says so, and goes on with its position.
func TestFollowThroughAnOutage(t *testing.T) {
	log := newLog(t, memURL(t))
	must(t, "a\n", "append", log)
	ctx, cancel := context.WithCancelCause(t.Context())
	var down atomic.Bool
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: whileUp(&down)}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"cat", "--follow", "--consumer", "mail", log}) }()
	eventually(t, "the first record", func() bool { return out.String() == "a\n" })
	down.Store(true)
	eventually(t, "it says so", func() bool { return strings.Contains(errs.String(), "out of order; trying again in 1s") })
	must(t, "b\n", "append", log)
	down.Store(false)
	eventually(t, "the second record", func() bool { return out.String() == "a\nb\n" })
	cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
	if got := <-ended; got != 143 {
		t.Errorf("status %d: %s", got, &errs)
	}
	if got := must(t, "", "cat", "--consumer", "mail", log); got != "" {
		t.Errorf("%q", got)
	}
}
