package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

// Survey is the state of a log. It marshals to JSON.
type Survey struct {
	Store   string          `json:"store"`
	Log     fence.ID        `json:"log"`
	Created time.Time       `json:"created"`
	Grace   string          `json:"grace"`
	Limits  manifest.Limits `json:"limits"`

	Leader    Leadership `json:"leader"`
	Compactor Leadership `json:"compactor"`

	// Tail is where the log ends; Offset is the number of all records ever
	// appended, First the offset of the first one kept.
	Tail   fence.Position `json:"tail"`
	First  uint64         `json:"first"`
	Offset uint64         `json:"offset"`
	// Cursor is the producer's; CursorText is it, if it is text.
	Cursor     []byte `json:"cursor,omitempty"`
	CursorText string `json:"cursor_text,omitempty"`
	Sealed     bool   `json:"sealed"` // the tail's epoch has no data yet

	Manifest Manifest `json:"manifest"`

	Objects map[string]verify.Count `json:"objects"`
	// Behind counts the objects below data/ behind the floor: seals, which stay,
	// and what waits to be pruned.
	Behind verify.Count `json:"data_behind_floor"`

	Skew  *Skew         `json:"skew,omitempty"`
	Probe *probe.Report `json:"probe,omitempty"`
	// Notes say what could not be found out.
	Notes []string `json:"notes,omitempty"`
}

// Manifest is what the newest one says.
type Manifest struct {
	Version   uint64                          `json:"version"`
	Written   time.Time                       `json:"written,omitzero"`
	Floor     fence.Position                  `json:"floor"`
	FloorAt   uint64                          `json:"floor_offset"`
	Hint      *fence.Position                 `json:"hint,omitempty"`
	Segments  int                             `json:"segments"`
	Seals     int                             `json:"seals"`
	PruneMark uint64                          `json:"prune_mark"`
	Dropped   int                             `json:"dropped"`
	Lists     int                             `json:"lists"`
	Files     int                             `json:"files"` // live at the floor
	Roles     map[layout.Role]state.RoleState `json:"roles"`
}

// Leadership is the state of an election.
type Leadership struct {
	// Leads tells whether somebody does, as far as one look can tell.
	Leads  bool        `json:"leads"`
	Epoch  fence.Epoch `json:"epoch"`
	Holder string      `json:"holder,omitempty"`
	State  string      `json:"state,omitempty"`
	// Since and Renewed are the holder's time of day.
	Since    time.Time `json:"since,omitzero"`
	Renewed  time.Time `json:"renewed,omitzero"`
	Validity string    `json:"validity,omitempty"`
	// Remaining is how long the lock lasts if it is not renewed, by the store's
	// clock; empty if that does not tell.
	Remaining   string `json:"remaining,omitempty"`
	Lapsed      bool   `json:"lapsed,omitempty"`
	Transitions uint64 `json:"transitions"`
	Reason      string `json:"reason,omitempty"`
}

// Skew is how far the store's clock is from this machine's.
type Skew struct {
	Offset      string `json:"offset"`
	Uncertainty string `json:"uncertainty"`
}

// Take looks at the log in st. Progress is called with the number of objects
// listed so far; may be nil. It writes one temporary object, to compare clocks.
func Take(ctx context.Context, st store.Store, progress func(int)) (*Survey, error) {
	log, err := state.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	f := log.Format()
	s := &Survey{
		Store: st.Traits().Name, Log: f.Log, Created: f.Created, Grace: time.Duration(f.Grace).String(),
		Limits: f.Limits, Probe: f.Probe,
	}
	for prefix, to := range map[string]*Leadership{layout.KindLock: &s.Leader, layout.KindCompactorLock: &s.Compactor} {
		if *to, err = leadership(ctx, st, prefix); err != nil {
			return nil, err
		}
	}
	m, tail, err := end(ctx, st, log)
	if err != nil {
		return nil, err
	}
	s.Tail, s.First, s.Offset = tail.Position, m.First(), tail.Offset
	s.Sealed = tail.Position.Seq == 1
	s.Cursor = tail.Cursor
	if text := string(tail.Cursor); printable(text) {
		s.CursorText = text
	}
	s.Manifest = Manifest{
		Version: m.Version, Written: m.Written, Floor: m.Floor.Position, FloorAt: m.Floor.Offset,
		Segments: len(m.Segments) + paged(m.SegmentPages), Seals: len(m.Seals) + paged(m.SealPages), PruneMark: m.PruneMark,
		Dropped: len(m.Dropped) + paged(m.DroppedPages), Lists: len(log.Lists(m)), Files: m.Live(), Roles: m.Roles,
	}
	if m.Hint != nil {
		s.Manifest.Hint = &m.Hint.Position
	}
	n := 0
	s.Objects = map[string]verify.Count{}
	for info, err := range store.ListAll(ctx, st, "", nil, nil) {
		if err != nil {
			return nil, err
		}
		if n++; progress != nil {
			progress(n)
		}
		kind := layout.KindOf(info.Key)
		c := s.Objects[kind]
		s.Objects[kind] = verify.Count{Objects: c.Objects + 1, Bytes: c.Bytes + info.Size}
		if p, ok := layout.ParseDataKey(info.Key); ok && m.Past(p) {
			s.Behind.Objects++
			s.Behind.Bytes += info.Size
		}
	}
	return s, s.skew(ctx, st)
}

// paged is how many entries pages have.
func paged(pages []state.Page[uint64]) (n int) {
	for _, p := range pages {
		n += p.Count
	}
	return n
}

// skew compares clocks. Without the right to write it does without.
func (s *Survey) skew(ctx context.Context, st store.Store) error {
	offset, uncertainty, err := measureSkew(ctx, st, clock.System())
	switch {
	case err == nil:
		s.Skew = &Skew{Offset: fmt.Sprintf("%+v", offset), Uncertainty: uncertainty.String()}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		s.Notes = append(s.Notes, "the clocks could not be compared: "+err.Error())
	}
	return nil
}

func leadership(ctx context.Context, st store.Store, prefix string) (Leadership, error) {
	e, err := leader.New(st, prefix, nil)
	if err != nil {
		return Leadership{}, err
	}
	rec, err := e.Leader(ctx)
	if err != nil && !errors.Is(err, leader.ErrNoLeader) {
		return Leadership{}, err
	}
	if rec.Epoch == 0 {
		return Leadership{}, nil
	}
	l := Leadership{
		Leads: rec.Leads(), Epoch: rec.Epoch, Holder: rec.Holder, State: string(rec.State), Since: rec.Acquired, Renewed: rec.Renewed,
		Validity: rec.Validity.String(), Lapsed: rec.Lapsed, Transitions: rec.Transitions, Reason: rec.Reason,
	}
	if !l.Leads {
		return l, nil
	}
	l.Remaining, err = remaining(ctx, st, rec)
	return l, err
}

// remaining asks for the age of the lock, by the store's clock alone.
func remaining(ctx context.Context, st store.Store, rec leader.Record) (string, error) {
	_, info, err := store.Read(ctx, st, rec.Key, &store.ReadOptions{Length: 1})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	age, known := info.Age()
	if err != nil || !known {
		return "", nil
	}
	return max(rec.Validity-age, 0).Round(100 * time.Millisecond).String(), nil
}

// endTries bounds how often the end is looked for anew because the floor has
// moved past what was read.
const endTries = 100

// end finds the end of the log.
func end(ctx context.Context, st store.Store, log *state.Log) (*state.Manifest, frame.Point, error) {
	f := log.Format()
	src := chain.Source{Store: st, Log: f.Log, Limits: f.Limits.Limits}
	for range endTries {
		m, err := log.Newest(ctx)
		if err != nil {
			return nil, frame.Point{}, err
		}
		at := m.Tail()
		var failed error
		for step, err := range src.Walk(ctx, at) {
			if failed = err; err != nil {
				break
			}
			at = step.To
		}
		// What was read, or found absent, may have been behind the floor: a hole, or
		// junk in one. Only the first seal needs a look, but one that is always taken
		// is simpler, and people wait here.
		from := m.Tail().Position
		if m, err = log.Newest(ctx); err != nil {
			return nil, frame.Point{}, err
		}
		if m.Past(from) {
			continue
		}
		if failed != nil {
			return nil, frame.Point{}, fmt.Errorf("%w; run `fencepost verify` to see the extent", failed)
		}
		return m, at, nil
	}
	return nil, frame.Point{}, fmt.Errorf("the floor moved %d times while the end was looked for; is the log compacted without pause?", endTries)
}

func printable(s string) bool {
	for _, r := range s {
		if r == '\uFFFD' || r < 0x20 {
			return false
		}
	}
	return s != ""
}
