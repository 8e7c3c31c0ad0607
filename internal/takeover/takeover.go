package takeover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// tries bounds how often an opener begins again. Each time the floor has passed what it
// was reading, so somebody compacts faster than it reads.
const tries = 100

// Config says which epoch of which log is opened, and how.
type Config struct {
	Log    *state.Log
	Token  fence.Token
	Settle *store.SettleOptions // tunes the retries of each request
	// InFlight and Window are those of the leader to stop, as far as the opener can know:
	// its own. A leader with larger ones is stopped too, but later.
	InFlight, Window int
	Clock            clock.Clock // for the time in the seals, which decides nothing
	Logger           *zap.Logger
	// Read is called with each object that the walk has read, by Run's goroutine.
	Read func(*chain.Step)
}

// Run opens the epoch of the token and returns the point where it begins. m is the newest
// manifest. Errors: [fence.ErrFenced] if a later epoch was opened, or this one by another
// process; [chain.ErrDamaged]; the store's and ctx's. After an error the token is spent.
func Run(ctx context.Context, c Config, m *state.Manifest) (frame.Point, error) {
	f := c.Log.Format()
	o := &opener{Config: c, nonce: fence.ID(uuid.New()), time: c.Clock.Wall(), src: &chain.Source{
		Store: c.Log.Store(), Log: f.Log, Limits: f.Limits, Settle: c.Settle,
		// More than a leader with the same options has in flight, to catch up with one.
		Ahead: min(max(2*c.InFlight, chain.DefaultAhead), 256),
	}}
	defer o.endBackstop()
	defer o.endLook()
	for range tries {
		begin, err := o.try(ctx, m)
		switch {
		case errors.Is(err, chain.ErrMoved):
			c.Logger.Info("the floor has moved during the takeover; beginning again")
		case errors.Is(err, chain.ErrDamaged) && m.Tail().Position != m.Floor.Position && !o.fromFloor:
			// guard:open-hint-fits. A walk from the manifest's hint that meets damage begins again at
			// the floor, before the log is called damaged.
			c.Logger.Warn("the log does not go on at the manifest's hint as the hint says; beginning again at the floor. Run `fencepost verify`",
				zap.Uint64("manifest", m.Version), zap.Stringer("hint", m.Tail().Position), zap.Error(err))
			o.fromFloor = true
		default:
			return begin, err
		}
		// guard:open-backstop-anew. An opener that begins its walk again forgets its backstop, so that
		// it can send another.
		//
		//mutant:replace o.endBackstop() => _ = o.backstop
		o.endBackstop()
		o.endLook()
		if m, err = c.Log.Newest(ctx); err != nil {
			return frame.Point{}, err
		}
	}
	return frame.Point{}, fmt.Errorf("the floor moved %d times while the tail was read; is the log compacted without pause?", tries)
}

// opener is the state of one Run.
type opener struct {
	Config
	src    *chain.Source
	follow *chain.Follower // of this try
	// nonce and time are in all seals of this opener, so that two requests for one slot
	// have the same bytes.
	nonce    fence.ID
	time     time.Time
	acked    fence.Position // the manifest says that everything before it was acknowledged
	backstop *backstop      // nil if there is none
	look     *look          // the last one that an own seal has begun; nil if there is none
	looks    sync.WaitGroup
	// fromFloor is true once a walk from a hint has met damage.
	fromFloor bool
}

// try takes the steps of a takeover once. Each step begins after the answer to the one
// before. The error is [chain.ErrMoved] if the floor has passed what was read.
func (o *opener) try(ctx context.Context, m *state.Manifest) (begin frame.Point, err error) {
	if err := o.admit(m); err != nil {
		return begin, err
	}
	if o.folded(m) {
		return m.Floor, nil
	}
	start := m.Tail()
	o.acked = start.Position
	if o.fromFloor {
		start = m.Floor
	}
	if e := start.Position.Epoch; e >= o.Token.Epoch() {
		// guard:open-hint. An opener gives up if the floor or the hint, where its walk is to begin, is
		// in its own epoch or a later one.
		return begin, o.fenced(e)
	}
	sealed, begin, err := o.sealTail(ctx, start)
	if err != nil {
		return begin, err
	}
	// guard:open-refresh. After an opener's seal is applied, the opener reads the manifest, and begins
	// again if the floor has passed the sealed slot.
	//
	//mutant:replace m.Past(sealed) => false && m.Past(sealed)
	if m, err = o.looked(ctx, sealed); err == nil && m.Past(sealed) {
		err = chain.ErrMoved
	}
	return begin, err
}

// folded reports whether a compactor has folded this opener's seal already. Then the epoch
// begins at the floor: nothing can have been appended in it yet.
//
// guard:open-folded. If the floor is slot 1 of the opener's epoch, and the last folded seal has the
// opener's nonce, the epoch begins at the floor.
//
//mutant:replace m.Seals[len(m.Seals)-1].Nonce == o.nonce => false
func (o *opener) folded(m *state.Manifest) bool {
	return len(m.Seals) > 0 && m.Floor.Position == fence.Position{Epoch: o.Token.Epoch(), Seq: 1} &&
		m.Seals[len(m.Seals)-1].Nonce == o.nonce
}

// floor reads the floor for the follower, and checks that the token is still good.
func (o *opener) floor(ctx context.Context) (fence.Position, error) {
	m, err := o.newest(ctx)
	if err != nil {
		return fence.Position{}, err
	}
	return m.Floor.Position, nil
}

// newest reads the newest manifest, and checks that the token is still good.
func (o *opener) newest(ctx context.Context) (*state.Manifest, error) {
	m, err := o.Log.Newest(ctx)
	if err == nil {
		err = o.admit(m)
	}
	return m, err
}

func (o *opener) admit(m *state.Manifest) error {
	// guard:open-role. An opener gives up at once if the manifest has a writer with its own epoch or a
	// later one.
	if r := m.Roles[layout.Writer]; r.Epoch >= o.Token.Epoch() {
		return o.fenced(r.Epoch)
	}
	return nil
}

func (o *opener) fenced(by fence.Epoch) error {
	return &fence.FencedError{Role: string(layout.Writer), Epoch: o.Token.Epoch(), By: by}
}
