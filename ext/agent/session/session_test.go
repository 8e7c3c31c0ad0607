package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// client is one in this process.
type client struct {
	t      *testing.T
	in     chan session.Message
	failed chan error // what Receive returns in place of a message
	once   sync.Once
	stop   chan struct{}
	events chan session.Event // without a buffer: the client reads
	over   chan struct{}      // the session has returned
	result chan error
	end    context.CancelFunc // of the process
}

func (c *client) Receive() (session.Message, error) {
	select {
	case m, ok := <-c.in:
		if !ok {
			return m, io.EOF
		}
		return m, nil
	case err := <-c.failed:
		return session.Message{}, err
	case <-c.stop:
		return session.Message{}, io.EOF
	}
}

func (c *client) Stop() { c.once.Do(func() { close(c.stop) }) }

func (c *client) Send(e session.Event) error {
	select {
	case c.events <- e:
		return nil
	case <-c.over:
		return io.ErrClosedPipe
	}
}

// soon is how long a test waits, in virtual time.
const soon = 5 * time.Minute

// lead begins a session.
func lead(t *testing.T, st store.Store, o *session.Options) *client {
	c := &client{t: t, in: make(chan session.Message), failed: make(chan error), stop: make(chan struct{}), events: make(chan session.Event), over: make(chan struct{}), result: make(chan error, 1)}
	ctx, end := context.WithCancel(t.Context())
	c.end = end
	if o == nil {
		o = &session.Options{}
	}
	o.Clock = clock.Go()
	go func() {
		c.result <- session.New(c, o).Lead(ctx, st, &fencepost.Options{Clock: clock.Go(), Writer: &writer.Options{Settle: logtest.Quick}})
		close(c.over)
	}()
	return c
}

// want waits for an event of a kind, and leaves out those before.
func (c *client) want(k session.Kind) session.Event {
	c.t.Helper()
	var before []session.Event
	late := time.After(soon)
	for over := false; !over; {
		select {
		case <-late:
			c.t.Fatalf("no event %s, but %+v", k, before)
		case e := <-c.events:
			if e.Kind == k {
				return e
			}
			before = append(before, e)
		case <-c.over:
			over = true
		}
	}
	c.t.Fatalf("no event %s, but %+v and %v", k, before, <-c.result)
	return session.Event{}
}

// wants waits until the client has been told of n messages.
func (c *client) wants(n int) {
	c.t.Helper()
	for n > 0 {
		n -= c.want(session.Committed).Appends
	}
}

func (c *client) append(cursor string, records ...string) {
	m := session.Message{Cursor: []byte(cursor)}
	for _, r := range records {
		m.Records = append(m.Records, []byte(r))
	}
	c.in <- m
}

func (c *client) ended() error {
	c.t.Helper()
	late := time.After(soon)
	for {
		select {
		case <-late:
			c.t.Fatal("the session does not end")
		case <-c.events:
		case <-c.over:
			return <-c.result
		}
	}
}

func bubble(t *testing.T, f func(t *testing.T, l *logtest.Log)) {
	logtest.Bubble(t, logtest.Format(), f)
}

func TestLead(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		c := lead(t, l.Mem, nil)
		if e := c.want(session.Leading); e.Epoch == 0 || e.First != 0 || len(e.Cursor) != 0 {
			t.Errorf("%+v", e)
		}
		c.append("1", "a", "b")
		c.in <- session.Message{Cursor: []byte("2"), Flush: true}
		if e := c.want(session.Flushed); e.End != 2 {
			t.Errorf("%+v", e)
		}
		close(c.in)
		if e := c.want(session.Ended); e.End != 2 || e.Why != "" {
			t.Errorf("%+v", e)
		}
		if err := c.ended(); err != nil {
			t.Error(err)
		}
		// The next one continues there.
		c = lead(t, l.Mem, nil)
		if e := c.want(session.Leading); e.First != 2 || string(e.Cursor) != "2" {
			t.Errorf("%+v", e)
		}
		close(c.in)
		if err := c.ended(); err != nil {
			t.Error(err)
		}
		if got := l.Contents(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%q", got)
		}
	})
}

// guard:one-term. Without this end: a client sends records 5 to 9; the term is lost, and record 5 is not committed; the
// process leads again, and appends record 9, which still waits in the stream. The log has a gap.
func TestOneTerm(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		c := lead(t, l.Mem, nil)
		c.want(session.Leading)
		c.append("1", "a")
		c.wants(1)
		// An operator deposes it.
		e, err := leader.New(l.Mem, fencepost.LockPrefix, &leader.Options{Clock: clock.Go()})
		if err == nil {
			_, err = e.StepDown(t.Context(), &leader.StepDownOptions{Immediate: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := 2; ; i++ {
				select {
				case c.in <- session.Message{Records: [][]byte{fmt.Append(nil, i)}, Cursor: fmt.Append(nil, i)}:
				case <-c.stop:
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		if e := c.want(session.Lost); e.Code != session.CodeFenced {
			t.Errorf("%+v", e)
		}
		before := l.Contents()
		if end, ok := errors.AsType[*session.EndError](c.ended()); !ok || end.Code != session.CodeFenced {
			t.Errorf("%v", end)
		}
		time.Sleep(time.Minute)
		if now := l.Contents(); !slices.Equal(now, before) {
			t.Errorf("it has appended %d records after its end", len(now)-len(before))
		}
		// What is there has no gap.
		for i, r := range before[1:] {
			if r != fmt.Sprint(i+2) {
				t.Errorf("record %d is %q", i+1, r)
			}
		}
	})
}

// A client that is silent for longer than it has promised makes way, and one that sends progress does not.
func TestSilent(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		c := lead(t, l.Mem, &session.Options{Promise: 10 * time.Second})
		c.want(session.Leading)
		for range 10 {
			time.Sleep(7 * time.Second)
			c.in <- session.Message{}
		}
		c.append("1", "a")
		c.wants(1)
		other := lead(t, l.Mem, nil)
		other.want(session.Waiting)
		if e := c.want(session.Lost); e.Code != session.CodeSilent || !strings.Contains(e.Why, "every 10s") || e.Unknown+e.NotCommitted != 0 {
			t.Errorf("%+v", e)
		}
		if err := c.ended(); !errors.Is(err, session.ErrSilent) {
			t.Error(err)
		}
		if e := other.want(session.Leading); string(e.Cursor) != "1" {
			t.Errorf("%+v", e)
		}
		close(other.in)
		if err := other.ended(); err != nil {
			t.Error(err)
		}
	})
}

// A client whose message waits for the one before, such as a large file that is uploaded, is not silent.
func TestBusyIsNotSilent(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		c := lead(t, l.Mem, &session.Options{Promise: 10 * time.Second})
		c.want(session.Leading)
		for i := range 20 {
			c.in <- session.Message{Do: func(context.Context, *writer.Writer) error { time.Sleep(30 * time.Second); return nil }}
			c.append(fmt.Sprint(i), "a")
			c.wants(1)
		}
		close(c.in)
		if err := c.ended(); err != nil {
			t.Error(err)
		}
	})
}

// guard:cursor-order. Without this check: a program that is started again forgets to continue at the cursor, and begins
// with its first record; the log has all records twice.
func TestCursorOrder(t *testing.T) {
	for name, c := range map[string]struct {
		cursors []string
		bad     bool
	}{
		"lower than in this session": {[]string{"9", "10", "9"}, true},
		"lower than in the history":  {[]string{"4"}, true},
		"the same, for two records":  {[]string{"7", "7", "8"}, false},
		"no numbers":                 {[]string{"b", "a"}, false},
		"from a number to a name":    {[]string{"8", "x", "1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *logtest.Log) {
				w := l.Open(nil)
				l.Append(w, "5")
				l.Close(w)
				s := lead(t, l.Mem, nil)
				s.want(session.Leading)
				for _, cursor := range c.cursors {
					s.append(cursor, "x")
				}
				if !c.bad {
					close(s.in)
				}
				err := s.ended()
				end, _ := errors.AsType[*session.EndError](err)
				if c.bad && (end == nil || end.Code != session.CodeInvalid || !strings.Contains(end.Error(), "must not go down")) || !c.bad && err != nil {
					t.Errorf("%v", err)
				}
				want := len(c.cursors) + 1
				if c.bad {
					want--
				}
				if got := l.Contents(); len(got) != want {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// Of two clients one waits, or is told who leads.
func TestTwoClients(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		a := lead(t, l.Mem, nil)
		first := a.want(session.Leading)
		b := lead(t, l.Mem, nil)
		if e := b.want(session.Waiting); e.Epoch != first.Epoch || e.Holder == "" || e.Until.IsZero() {
			t.Errorf("%+v", e)
		}
		hasty := lead(t, l.Mem, &session.Options{NoWait: true})
		if e := hasty.want(session.Lost); e.Code != session.CodeBusy || !strings.Contains(e.Why, fmt.Sprintf("in epoch %d", first.Epoch)) {
			t.Errorf("%+v", e)
		}
		if err := hasty.ended(); !errors.Is(err, session.ErrBusy) {
			t.Error(err)
		}
		a.append("1", "a")
		a.in <- session.Message{Resign: true}
		a.want(session.Draining)
		b.want(session.Leading)
		b.append("2", "b")
		b.wants(1)
		if err := a.ended(); err == nil {
			t.Error("a does not know that it leads no more")
		}
		close(b.in)
		if err := b.ended(); err != nil {
			t.Error(err)
		}
		if got := l.Contents(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%q", got)
		}
	})
}

// When the process is told to end, what it has read is committed first.
func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		c := lead(t, l.Mem, nil)
		c.want(session.Leading)
		for i := range 100 {
			c.append(fmt.Sprint(i), "x")
		}
		c.end()
		c.want(session.Draining)
		if e := c.want(session.Ended); e.End != 100 || e.Code != session.CodeStopped {
			t.Errorf("%+v", e)
		}
		if got := l.Contents(); len(got) != 100 {
			t.Errorf("%d records", len(got))
		}
		_ = c.ended()
	})
}

// A client that leaves does not lead, whatever it waits for.
func TestLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		a := lead(t, l.Mem, nil)
		a.want(session.Leading)
		for _, err := range []error{io.EOF, errors.New("the connection was cut")} {
			b := lead(t, l.Mem, nil)
			b.want(session.Waiting)
			b.failed <- err
			got := b.ended()
			if end, _ := errors.AsType[*session.EndError](got); (got == nil) != errors.Is(err, io.EOF) || end != nil && end.Code != session.CodeGone {
				t.Errorf("%v: %v", err, got)
			}
		}
		// A leader whose stream is cut is committed up to there.
		a.append("1", "a")
		a.failed <- errors.New("the connection was cut")
		if end, ok := errors.AsType[*session.EndError](a.ended()); !ok || end.Code != session.CodeGone || end.Unknown+end.NotCommitted != 0 {
			t.Errorf("%v", end)
		}
		if got := l.Contents(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
	})
}

// A client that does not read loses the term, and does not keep the process.
func TestUnread(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		c := lead(t, l.Mem, nil)
		c.want(session.Leading)
		go func() {
			for {
				select {
				case c.in <- session.Message{Records: [][]byte{[]byte("x")}, Flush: true}:
				case <-c.stop:
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		other := lead(t, l.Mem, nil)
		other.want(session.Waiting)
		other.want(session.Leading) // nobody reads c.events meanwhile
		close(other.in)
		if err := other.ended(); err != nil {
			t.Error(err)
		}
		if err := <-c.result; !errors.Is(err, session.ErrUnread) {
			t.Error(err)
		}
	})
}

// A client that waits is told why the store does not work.
func TestTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		full := &broken{Store: l.Mem}
		c := lead(t, full, nil)
		if e := c.want(session.Trouble); !strings.Contains(e.Why, "no space left") {
			t.Errorf("%+v", e)
		}
		full.mended.Store(true)
		c.want(session.Leading)
		close(c.in)
		if err := c.ended(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// In an epoch of somebody else, such as fencepost exec, a session only works.
func TestWork(t *testing.T) {
	bubble(t, func(t *testing.T, l *logtest.Log) {
		w, err := writer.Open(t.Context(), l.Mem, fence.NewToken(7), &writer.Options{Clock: clock.Go(), Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, in: make(chan session.Message), failed: make(chan error), stop: make(chan struct{}), events: make(chan session.Event), over: make(chan struct{}), result: make(chan error, 1)}
		go func() {
			c.result <- session.New(c, &session.Options{Clock: clock.Go()}).Work(t.Context(), w)
			close(c.over)
		}()
		if e := c.want(session.Leading); e.Epoch != 7 {
			t.Errorf("%+v", e)
		}
		c.append("1", "a")
		c.wants(1)
		l.Epoch = 7
		next := l.Open(nil)
		c.append("2", "b")
		if e := c.want(session.Lost); e.Code != session.CodeFenced || e.Unknown != 0 || e.NotCommitted != 1 {
			t.Errorf("%+v", e)
		}
		_ = c.ended()
		_ = w.Close(t.Context())
		l.Close(next)
		if got := l.Contents(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
	})
}
