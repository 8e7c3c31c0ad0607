package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

const (
	// identity is how many leading bytes tell a log object from all others: the
	// header with its nonce. A whole seal fits.
	identity = frame.HeaderSize
	// openTries bounds how often opening starts over. Each time the floor has
	// moved past what was being read: somebody compacts faster than we read.
	openTries = 100
)

// opening is the state of one Open.
type opening struct {
	log   *state.Log
	src   *chain.Source
	token fence.Token
	nonce fence.ID  // of this opener's seals
	time  time.Time // likewise
	opts  Options
	read  Recovery
	wall  *wall // nil if there is none
	// backstop is nil if nothing has been put ahead of the walk.
	backstop *backstop
}

// recovering counts an object and tells the hook.
func (o *opening) recovering(s *chain.Step) {
	r := &o.read
	r.Objects++
	r.Records += uint64(s.Frame.Records)
	r.Bytes += s.Size
	r.Position, r.Offset, r.Time = s.To.Position, s.To.Offset, s.Frame.Time
	if hook := o.opts.Hooks.Recovering; hook != nil {
		hook(*r)
	}
}

// open takes the epoch of the token: it finds the tail of the chain, from the
// newest manifest on, and seals it. It returns the point at which the new epoch
// begins.
//
// The steps are in this order, and each begins after the one before has its
// answer; with a wall, the last look at the manifest begins after the answer to the
// seal that counts.
func (o *opening) open(ctx context.Context, m *state.Manifest) (frame.Point, error) {
	defer o.tearDown()
	defer o.endBackstop()
	for try := range openTries {
		o.tearDown()
		// guard:open-backstop-anew. It may have fallen into a hole, where it stops nobody.
		//
		//mutant:replace o.endBackstop() => _ = o.backstop
		o.endBackstop()
		var err error
		if try > 0 {
			m, err = o.log.Newest(ctx)
		}
		if err == nil {
			err = o.admit(m)
		}
		if err != nil {
			return frame.Point{}, err
		}
		if begin, ok := o.folded(m); ok {
			return begin, nil
		}
		start := m.Tail()
		if start.Position.Epoch >= o.token.Epoch() {
			// guard:open-hint. Also for a hint: without this a zombie opener would
			// begin to read in the live leader's epoch and seal its first empty slot.
			return frame.Point{}, o.fenced(start.Position.Epoch)
		}
		var sealed fence.Position
		var begin frame.Point
		sealed, begin, err = o.sealTail(ctx, start)
		if errors.Is(err, errRestart) {
			continue
		}
		if err != nil {
			return frame.Point{}, err
		}
		// guard:open-refresh. The slot was empty, but why? If the floor has passed it,
		// it was a hole left by pruning: the history goes on elsewhere, and our seal
		// is junk. Or a quick compactor has folded the seal already: see folded.
		//
		//mutant:replace !m.Past(sealed) => true
		if m, err = o.newestAfter(ctx, sealed); err != nil {
			return frame.Point{}, err
		}
		if !m.Past(sealed) {
			return begin, nil
		}
		o.opts.Logger.Info("the floor has passed the slot that was sealed; reading again", zap.Stringer("slot", sealed))
	}
	return frame.Point{}, fmt.Errorf("writer: the floor moved %d times while the tail was read; is the log compacted without pause?", openTries)
}

var errRestart = errors.New("writer: the floor has moved")

// folded returns the point at which the token's epoch begins, if a compactor has
// folded this opener's seal already.
//
// guard:open-folded. It is told by the nonce of the last seal before the floor, and
// the point is the floor itself: nothing can have been appended in this epoch yet.
// The point behind the seal that was found by walking will not do. A wall's seals
// have one nonce, and one of them may have fallen into a hole: read from there, the
// epoch would begin at an offset that the chain has long passed.
//
//mutant:replace m.Seals[len(m.Seals)-1].Nonce == o.nonce => false
func (o *opening) folded(m *state.Manifest) (frame.Point, bool) {
	if len(m.Seals) == 0 || m.Floor.Position != (fence.Position{Epoch: o.token.Epoch(), Seq: 1}) {
		return frame.Point{}, false
	}
	return m.Floor, m.Seals[len(m.Seals)-1].Nonce == o.nonce
}

// newest reads the newest manifest and checks that the token is still good.
func (o *opening) newest(ctx context.Context) (*state.Manifest, error) {
	m, err := o.log.Newest(ctx)
	if err == nil {
		err = o.admit(m)
	}
	return m, err
}

// newestAfter is newest, read after slot p was sealed.
func (o *opening) newestAfter(ctx context.Context, p fence.Position) (*state.Manifest, error) {
	if o.wall == nil {
		return o.newest(ctx)
	}
	m, err := o.wall.newest(ctx, p)
	if err == nil {
		err = o.admit(m)
	}
	return m, err
}

func (o *opening) admit(m *state.Manifest) error {
	// guard:open-role. A writer of this epoch or a later one has been open: an epoch
	// is opened once.
	if r := m.Roles[layout.Writer]; r.Epoch >= o.token.Epoch() {
		return o.fenced(r.Epoch)
	}
	return nil
}

func (o *opening) fenced(by fence.Epoch) error {
	return &fence.FencedError{Role: string(layout.Writer), Epoch: o.token.Epoch(), By: by}
}

// sealTail walks the chain from a point and puts a seal on its first empty slot.
// It returns the sealed slot and the point behind the seal.
func (o *opening) sealTail(ctx context.Context, start frame.Point) (fence.Position, frame.Point, error) {
	at, from := start, start.Position
	var followed *fence.Position // the first seal that was followed
	var beyond uint64            // the last slot behind the tail that was seen to be taken
	o.src.Beyond = func(p fence.Position) { beyond = p.Seq }
	for {
		beyond = 0
		for step, err := range o.src.Walk(ctx, at) {
			if err != nil {
				return fence.Position{}, at, o.judge(ctx, first(followed, step.From.Position), err)
			}
			if step.Frame.Kind == frame.Seal {
				switch {
				case step.Frame.Nonce == o.nonce:
					// guard:open-own. Our own, the first of our wall, or the backstop: it is no
					// successor's. Seals that were followed on the way were judged before the wall
					// was built, or by the objects between (see stopAhead).
					return step.From.Position, step.To, nil
				case step.Frame.Next >= o.token.Epoch():
					// guard:open-later-seal. A later opener has sealed: what is behind is its own.

					// guard:open-junk-seal. Or its junk lies in a pruned hole, and then the history
					// goes on elsewhere.
					//
					//mutant:replace o.stillThere(ctx, first(followed, step.From.Position)) => error(nil)
					if err := o.stillThere(ctx, first(followed, step.From.Position)); err != nil {
						return fence.Position{}, at, err
					}
					return fence.Position{}, at, &fence.FencedError{Role: string(layout.Writer), Epoch: o.token.Epoch(), By: step.Frame.Next, Key: layout.DataKey(step.From.Position)}
				}
				followed = first(followed, step.From.Position)
			}
			if at = step.To; at.Position.Epoch != from.Epoch {
				from = at.Position
			}
			o.recovering(&step)
			// guard:open-backstop. A leader that appends faster than this reads is never
			// caught up with.
			//
			//mutant:replace o.stopAhead(ctx, from, at.Position) => _ = from
			o.stopAhead(ctx, from, at.Position)
			if err := o.backstop.failed(); err != nil {
				return fence.Position{}, at, err
			}
		}
		if err := o.wall.failed(at.Position); err != nil {
			return fence.Position{}, at, err
		}
		// guard:open-followed. A seal that was followed may have been junk in a hole:
		// a zombie opener put it where everything had been pruned. The seals on the
		// chain stay for ever, so it is enough that the floor has not passed the first
		// one: one read.
		if err := o.stillThere(ctx, followed); err != nil {
			return fence.Position{}, at, err
		}
		var refused *chain.Object
		sent := max(at.Position.Seq-1, beyond) // by the leader
		if sent < at.Position.Seq && o.wall == nil {
			found, own, err := o.seal(ctx, at.Position)
			if err != nil {
				return fence.Position{}, at, err
			}
			if own {
				frame, err := frame.Decode(found.Body, o.src.Limits)
				if err != nil {
					return fence.Position{}, at, err
				}
				begin, err := at.Next(o.src.Log, frame)
				return at.Position, begin, err
			}
			// Refused. If that is data its writer is there, with more in flight. If it is a seal
			// of another opener's, there is nobody to be outrun by.
			if h, err := frame.DecodeHeader(found.Body); err != nil || h.Kind != frame.Data {
				continue
			}
			refused, sent = &found, at.Position.Seq+uint64(o.opts.InFlight)
		}
		// guard:open-wall. A leader that saturates its pipeline can win every race for
		// the next empty slot. It cannot outrun a wall.
		//
		//mutant:replace o.build(ctx, at.Position, refused, sent) => _ = refused
		o.build(ctx, at.Position, refused, sent)
	}
}

func first(followed *fence.Position, p fence.Position) *fence.Position {
	if followed != nil {
		return followed
	}
	return &p
}

// stillThere returns errRestart if the floor has passed the first seal followed.
func (o *opening) stillThere(ctx context.Context, followed *fence.Position) error {
	if followed == nil {
		return nil
	}
	m, err := o.newest(ctx)
	if err != nil {
		return err
	}
	if m.Past(*followed) {
		return errRestart
	}
	return nil
}

// judge decides what an object means that cannot be read or does not fit: damage,
// unless the floor has passed since, the first seal that was followed on the way.
//
// guard:open-damage. A junk seal may lead into an epoch that really exists and was
// opened elsewhere: what lies there is sound and does not fit our path.
//
//mutant:replace o.stillThere(ctx, since) => error(nil)
func (o *opening) judge(ctx context.Context, since *fence.Position, err error) error {
	if !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrLimit) {
		return err
	}
	if restart := o.stillThere(ctx, since); restart != nil {
		return restart
	}
	return fmt.Errorf("writer: the log cannot be continued: %w; run `fencepost verify` to see the extent", err)
}

// ahead is how many objects an opener reads at once: more than a leader with the same options
// has under way, or it would not catch up with one.
func ahead(inFlight int) int { return min(max(2*inFlight, chain.DefaultAhead), 256) }

// Open takes over the log in st in the epoch of token, and creates the log if
// there is none. When it returns no writer of an earlier epoch will ever commit
// anything again, wherever it is and whatever it believes.
//
// A token is good for one Open. Of writers that are opened at once the one with
// the greatest epoch prevails.
//
// Ctx bounds the opening only. Errors: [ErrFenced] if a later epoch has been
// opened; those of manifest.Init; fence.ErrCorrupt if the tail is damaged. After
// an error the token is spent.
func Open(ctx context.Context, st store.Store, token fence.Token, opts *Options) (*Writer, error) {
	if !token.Valid() {
		return nil, fmt.Errorf("writer: the zero token gives no right to write; tokens come from an election, or from fence.NewToken with an epoch of at least 1")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	log, m, err := state.Begin(ctx, st, o.Init, &state.Options{Settle: o.Settle, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	format := log.Format()
	if err := o.fit(format.Limits.Limits); err != nil {
		return nil, err
	}
	op := &opening{
		log:   log,
		src:   &chain.Source{Store: st, Log: format.Log, Limits: format.Limits.Limits, Settle: o.Settle, Ahead: ahead(o.InFlight)},
		token: token, nonce: fence.ID(uuid.New()), time: o.Clock.Wall(), opts: o,
	}
	begin, err := op.open(ctx, m)
	if err != nil {
		return nil, err
	}
	o.Logger.Info("opened", zap.Uint64("epoch", uint64(token.Epoch())), zap.Uint64("offset", begin.Offset), zap.Int("read", op.read.Objects))
	return start(log, token, begin, o)
}
