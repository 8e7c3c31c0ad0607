package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// vouched is how long a reader relies on a source that has said something.
const vouched = 10 * time.Second

// push is one stream's use of Options.Push. A pushed object is what a GET of its slot returns, only sooner, so a stream
// takes it where it would take that: at its own position, and nowhere else.
type push struct {
	objects chan []byte // nil while nobody listens to the source
	cancel  context.CancelFunc
	ended   chan struct{}  // closed when the source has returned; nil before the first call
	opened  clock.Instant  // when it was called last
	next    fence.Position // where the source is
	until   clock.Instant  // nothing is missed before then
	last    *frame.Frame   // the last object that was taken from the source and not read in the store; nil if there is none
	from    uint64         // the first record that was taken since the source and the store were compared
}

// listen calls the source, if it is not at work in this epoch.
func (s *stream) listen(ctx context.Context) {
	p, now := &s.push, s.opts.Clock.Now()
	again := p.next.Epoch == s.at.Position.Epoch // a new epoch has a new leader, and so another source
	if p.objects != nil && again {
		return
	}
	p.drop(now)
	if p.ended != nil {
		select {
		case <-p.ended:
		default:
			return
		}
		if again && now.Sub(p.opened) < s.opts.PollMax {
			return
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	objects, ended := make(chan []byte), make(chan struct{})
	p.objects, p.ended, p.cancel, p.opened, p.next = objects, ended, cancel, now, s.at.Position
	go deliver(ctx, s.opts.Push, p.next, objects, ended)
}

// deliver hands over what a source yields, one after the other: nothing is kept here.
func deliver(ctx context.Context, source func(context.Context, fence.Position) iter.Seq[[]byte], at fence.Position, objects chan<- []byte, ended chan<- struct{}) {
	defer close(ended)
	defer close(objects)
	for object := range source(ctx, at) {
		select {
		case objects <- object:
		case <-ctx.Done():
			return
		}
	}
}

// drop lets nobody listen to the source any more.
func (p *push) drop(now clock.Instant) {
	if p.objects != nil {
		p.cancel()
	}
	p.objects, p.until = nil, now
}

// hush ends the source.
func (p *push) hush() {
	p.drop(p.until)
	if p.ended != nil {
		<-p.ended
	}
}

// wait waits before the next look at the tail, and delivers what the source yields meanwhile. While the source vouches
// that there is no more, there is no look.
func (s *stream) wait(ctx context.Context, f *chain.Follower, pause time.Duration) error {
	if s.opts.Push == nil {
		return clock.Sleep(ctx, s.opts.Clock, pause)
	}
	s.listen(ctx)
	look := make(chan struct{}, 1)
	timer := s.opts.Clock.AfterFunc(pause, func() { look <- struct{}{} })
	defer func() { timer.Stop() }()
	due := s.opts.Clock.Now().Add(pause)
	for {
		select {
		case object, ok := <-s.push.objects:
			fits := ok
			if ok {
				var err error
				if fits, err = s.take(object); err != nil {
					return err
				}
			}
			now := s.opts.Clock.Now()
			if !fits {
				s.push.drop(now)
				if now < due {
					continue // the timer will fire
				}
				return s.compare(ctx, f)
			}
			// guard:push-vouch. A source vouches for the reader's position only when it has come there itself.
			//
			//mutant:replace s.push.next == s.at.Position => true
			if s.push.next == s.at.Position {
				s.push.until = now.Add(vouched)
			}
		case <-look:
			if left := s.push.until.Sub(s.opts.Clock.Now()); left > 0 {
				timer = s.opts.Clock.AfterFunc(left, func() { look <- struct{}{} })
				continue
			}
			return s.compare(ctx, f)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take delivers a pushed object if it is the next one of the log.
func (s *stream) take(object []byte) (fits bool, err error) {
	if len(object) == 0 {
		return true, nil
	}
	f, err := frame.Decode(object, s.chain.Limits)
	// guard:push-seal. A reader passes no seal on the word of a source: only a seal that it has read in the store, and that the
	// manifest confirms, ends an epoch.
	//
	//mutant:replace err != nil || f.Kind == frame.Seal => err != nil
	if err != nil || f.Kind == frame.Seal || f.Log != s.chain.Log {
		return false, nil //nolint:nilerr // the poll finds what is there
	}
	after := fence.Position{Epoch: f.Position.Epoch, Seq: f.Position.Seq + 1}
	if f.Position.Before(s.at.Position) {
		s.push.next = after // a look has found it before
		return true, nil
	}
	// guard:push-chain. A reader takes a pushed object only if it fits the chain at the reader's own position, as an object that
	// it has read.
	//
	//mutant:replace err != nil => false
	to, err := s.at.Next(s.chain.Log, f)
	if err != nil {
		return false, nil //nolint:nilerr // likewise
	}
	if err := s.deliver(f); err != nil {
		return false, err
	}
	if s.push.last == nil {
		s.push.from = s.at.Offset
	}
	s.push.last, s.push.next = f, after
	s.at, s.came = to, s.opts.Clock.Now()
	return true, nil
}

// compare reads the last object that was taken from the source, before the stream looks for itself.
//
// guard:push-compare. Before a reader looks for itself again, it compares the last pushed object with the store's, and ends with an
// error if they differ.
//
//mutant:replace last == nil => true
func (s *stream) compare(ctx context.Context, f *chain.Follower) error {
	last := s.push.last
	if last == nil {
		return nil
	}
	slot := last.Position
	o, err := s.chain.ReadHead(ctx, slot)
	if err == nil {
		var h frame.Header
		// The checksum is that of the whole object, with its nonce, and those before it are in it by the chain.
		if h, err = frame.DecodeHeader(o.Body); err == nil && h.Checksum() == last.Checksum() {
			s.push.last = nil
			return nil
		}
		err = fmt.Errorf("%w: the store has another object", fence.ErrCorrupt)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%w: the store has no object", fence.ErrCorrupt)
	}
	err = f.Classify(ctx, slot, err)
	differs := errors.Is(err, chain.ErrDamaged)
	// guard:push-folded. If the floor has passed the last pushed object, a reader compares its records with those of the segments.
	//
	//mutant:replace errors.Is(err, errMoved) => false
	if errors.Is(err, errMoved) {
		same, unread := s.folded(ctx, last)
		if unread != nil {
			return unread
		}
		differs = !same
		s.push.last = nil
	}
	if differs {
		// Not ErrDamaged: no other place to begin at takes back what was delivered.
		err = fmt.Errorf("reader: %w: %s was pushed and its records were delivered, but the log has another object there, or none: do not take objects from that source (Options.Push), and read again from record %d on",
			ErrCorrupt, layout.DataKey(slot), s.push.from)
	}
	return err
}

// folded reports whether the segments have the records of an object. Records that were given up since count as the same.
func (s *stream) folded(ctx context.Context, f *frame.Frame) (same bool, err error) {
	next, end := f.Offset, f.Offset+uint64(f.Records)
	if next < s.m.First() || next == end {
		return true, nil
	}
	want, stop := iter.Pull2(f.All())
	defer stop()
	for p, err := range s.segs.Read(ctx, refs(s.log.Segments(ctx, s.m, next)), next) {
		if err != nil {
			return false, s.unreadable(ctx, p.Ref.Key, err)
		}
		for off, rec := range p.Frame.All() {
			if off < next {
				continue
			}
			if _, pushed, _ := want(); !bytes.Equal(rec, pushed) {
				return false, nil
			}
			if next++; next == end {
				return true, nil
			}
		}
	}
	return false, nil
}
