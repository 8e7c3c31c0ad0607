package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// sent is a message that waits for its outcome.
type sent struct {
	future  writer.Future
	records int
	cursor  []byte
	flush   bool
}

// outcomes of the messages that were not committed.
type outcomes struct {
	unknown, refused int
	err              error // of the first one
}

// work serves the client for one term.
func (s *Session) work(ctx context.Context, w *writer.Writer, resign func()) error {
	s.cursor = w.Recovered().Cursor
	s.out.put(leading(w))
	s.led.Store(true)
	pending, settled := make(chan sent, inFlight), make(chan outcomes, 1)
	go func() { settled <- s.acknowledge(pending) }()
	why := s.take(ctx, w, pending, resign)
	close(pending)
	drain, cancel := clock.WithTimeout(context.WithoutCancel(ctx), s.clock, settling, errors.New("session: the store has not settled all appends in time"))
	defer cancel()
	// What was taken is in the history, or the writer is at its end and knows what is.
	if w.Flush(drain) != nil {
		_ = w.Close(drain)
	}
	o := <-settled
	if o.err != nil && (why == nil || codeOf(why) == CodeStopped) {
		why = o.err
	}
	return s.ended(why, o.unknown, o.refused)
}

// take appends what the client sends. It returns nil when the client is done.
func (s *Session) take(ctx context.Context, w *writer.Writer, pending chan<- sent, resign func()) error {
	// What was read is committed although ctx has ended, if the log still lets it.
	life, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	defer context.AfterFunc(ctx, func() {
		_ = clock.Sleep(life, s.clock, settling)
		cut(context.Cause(ctx))
	})()
	tick := make(chan struct{}, 1)
	stop := s.every(s.opts.Promise/4, tick)
	defer stop()
	var over error
	for done := ctx.Done(); ; {
		select {
		case m, ok := <-s.in:
			if !ok {
				if s.inErr != nil {
					return s.inErr
				}
				return over
			}
			if err := s.append(life, w, m, pending, resign); err != nil {
				if over != nil {
					return over
				}
				return err
			}
		case <-done:
			over, done = context.Cause(ctx), nil
			s.client.Stop()
		case <-s.failed:
			return s.failure
		case <-w.Done():
			return errors.Join(over, w.Err())
		case <-tick:
			if !s.listens.Load() {
				continue // the client has sent something, and waits itself
			}
			if quiet := s.clock.Now().Sub(clock.Instant(s.heard.Load())); quiet >= s.opts.Promise {
				return fmt.Errorf("%w for %v, and has promised to send something every %v; let it send progress", ErrSilent, quiet.Round(time.Millisecond), s.opts.Promise)
			}
		}
	}
}

// every sends to tick again and again, until stop is called.
func (s *Session) every(d time.Duration, tick chan<- struct{}) (stop func()) {
	if d <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for clock.Sleep(ctx, s.clock, d) == nil {
			select {
			case tick <- struct{}{}:
			default:
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// append does what one message asks for.
func (s *Session) append(ctx context.Context, w *writer.Writer, m Message, pending chan<- sent, resign func()) error {
	if m.Do != nil {
		if err := m.Do(ctx, w); err != nil {
			return err
		}
	}
	var opts []writer.AppendOption
	if m.Cursor != nil {
		if err := s.inOrder(m.Cursor); err != nil {
			return &EndError{NotCommitted: 1, Err: err}
		}
		opts = append(opts, writer.Cursor(m.Cursor))
	}
	if m.Commit != nil || m.Records != nil || m.Cursor != nil {
		p := sent{records: len(m.Records), cursor: m.Cursor}
		var err error
		if m.Commit == nil {
			p.future, err = w.AppendAsync(ctx, m.Records, opts...)
		} else {
			p.future, err = s.commit(ctx, w, m, opts)
		}
		if err != nil {
			return &EndError{NotCommitted: 1, Err: err}
		}
		if m.Cursor != nil {
			s.cursor = m.Cursor
		}
		pending <- p
	}
	if m.Flush {
		pending <- sent{flush: true}
	}
	if m.Resign {
		s.out.put(Event{Kind: Draining})
		resign()
	}
	return nil
}

// commit uploads files, and makes them part of the table.
func (s *Session) commit(ctx context.Context, w *writer.Writer, m Message, opts []writer.AppendOption) (writer.Future, error) {
	edit := manifest.Edit{Remove: m.Commit.Remove}
	for _, name := range m.Commit.Files {
		if s.opts.Upload == nil {
			return writer.Future{}, fmt.Errorf("%w: this carrier takes no names of files: %q", ErrInvalid, name)
		}
		f, err := s.opts.Upload(ctx, w, name, m.Commit.Values)
		if err != nil {
			return writer.Future{}, err
		}
		edit.Add = append(edit.Add, f)
	}
	return w.CommitFilesAsync(ctx, edit, opts...)
}

// acknowledge tells the outcomes in order. What comes before an unknown one counts as unknown: the client is told
// of a prefix.
func (s *Session) acknowledge(pending <-chan sent) (o outcomes) {
	for p := range pending {
		if p.flush {
			if o.err == nil {
				s.out.wait(Event{Kind: Flushed, End: s.out.end()})
			}
			continue
		}
		first, err := p.future.Wait(context.Background())
		switch {
		case err == nil && o.err == nil:
			s.out.wait(Event{Kind: Committed, First: first, End: first + uint64(p.records), Appends: 1, Cursor: p.cursor})
			continue
		case err != nil && errors.Is(err, writer.ErrNotCommitted):
			o.refused++
		default:
			o.unknown, o.refused = o.unknown+o.refused+1, 0
		}
		if o.err == nil {
			o.err = err
		}
	}
	return o
}
