package survey

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/group"
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

// KindBackup is the Survey.Kind of a backup.
const KindBackup = "backup"

func kind(f *manifest.Format) string {
	if f.Backup {
		return KindBackup
	}
	return "log"
}

// Survey is the state of a log. It marshals to JSON.
type Survey struct {
	Kind    string       `json:"kind"` // "log", or "backup"
	Store   string       `json:"store"`
	Log     fence.ID     `json:"log"`
	Created time.Time    `json:"created"`
	Grace   string       `json:"grace"`
	Limits  fence.Limits `json:"limits"`

	Leader    Leadership `json:"leader"`
	Compactor Leadership `json:"compactor"`

	// Tail is the first empty slot of the chain. Offset is the number of all records that
	// were ever appended, First the offset of the first one that is kept.
	Tail   fence.Position `json:"tail"`
	First  uint64         `json:"first"`
	Offset uint64         `json:"offset"`
	// Cursor is the producer's. CursorText is the same as text, if it is text.
	Cursor     []byte `json:"cursor,omitempty"`
	CursorText string `json:"cursor_text,omitempty"`

	Manifest Manifest `json:"manifest"`

	// Objects counts all objects, by their kinds, if that was asked for.
	Objects map[string]verify.Count `json:"objects,omitempty"`
	// Strange is how many of the unknown objects are not of a group of workers at the same place.
	Strange int `json:"-"`
	// BeforeFloor counts the objects below data/ before the floor: seals, which stay, and
	// objects that wait to be pruned.
	BeforeFloor *verify.Count `json:"data_before_floor,omitempty"`
	// Overdue is how many of those are older than objects become that wait to be pruned, or are of unknown age.
	Overdue int `json:"-"`
	// FilesStore is the name of the second store, if the log keeps the files of its table there.
	// FilesBeside counts the objects of this log in it, if that was asked for.
	FilesStore  string        `json:"files_store,omitempty"`
	FilesBeside *verify.Count `json:"files_beside,omitempty"`

	Probe *probe.Report `json:"probe,omitempty"`
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
	// Leads tells whether somebody leads, as far as one reading of the lock can tell.
	Leads  bool        `json:"leads"`
	Epoch  fence.Epoch `json:"epoch"`
	Holder string      `json:"holder,omitempty"`
	State  string      `json:"state,omitempty"`
	// Since and Renewed are the holder's time of day, and so is Until: when the lease of a holder
	// that leads ends unless it is renewed before.
	Since       time.Time `json:"since,omitzero"`
	Renewed     time.Time `json:"renewed,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	Validity    string    `json:"validity,omitempty"`
	Lapsed      bool      `json:"lapsed,omitempty"`
	Transitions uint64    `json:"transitions"`
	Reason      string    `json:"reason,omitempty"`
	// EndedBy is who has ended the leadership, if that was not its holder. A holder that was alive replaces it
	// when it has stopped, and leaves the reason.
	EndedBy string `json:"ended_by,omitempty"`
}

// Options say what a survey includes. Nil works like the zero value.
type Options struct {
	// Objects counts all objects, which takes a listing of everything.
	Objects bool
	// Files is the second store, if the log has one and Objects should count it too.
	Files store.Store
	// Progress is called with the number of objects listed so far; it may be nil.
	Progress func(int)
	// Last is where the look before ended. If it is not nil, Take reads only what came after, and updates it.
	Last *Last
	// BadLock is called if the newest lock below a prefix is corrupt, or a newer version of this project
	// has written it. Then Take goes on, and says nothing of that leadership. If it is nil, Take fails.
	BadLock func(prefix string, err error)
}

// Take surveys the log in st. It writes nothing. Without Options.Objects it lists only locks
// and manifests, and reads the few objects of the chain after the last checkpoint.
func Take(ctx context.Context, st store.Store, opts *Options) (*Survey, error) {
	if opts == nil {
		opts = &Options{}
	}
	log, err := state.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	f := log.Format()
	s := &Survey{
		Kind: kind(&f), Store: st.Traits().Name, Log: f.Log, Created: f.Created, Grace: f.Grace.String(),
		Limits: f.Limits, Probe: f.Probe,
	}
	if f.Files != nil {
		s.FilesStore = f.Files.Store
	}
	if s.Leader, err = opts.leadership(ctx, st, layout.LockPrefix); err != nil {
		return nil, err
	}
	if s.Compactor, err = opts.leadership(ctx, st, layout.CompactorLockPrefix); err != nil {
		return nil, err
	}
	m, tail, err := opts.Last.findTail(ctx, st, log)
	if err != nil {
		return nil, err
	}
	s.Tail, s.First, s.Offset = tail.Position, m.First(), tail.Offset
	s.Cursor = tail.Cursor
	s.CursorText = Text(tail.Cursor)
	s.Manifest = Manifest{
		Version: m.Version, Written: m.Written, Floor: m.Floor.Position, FloorAt: m.Floor.Offset,
		Segments: len(m.Segments) + paged(m.SegmentPages), Seals: len(m.Seals) + paged(m.SealPages), PruneMark: m.PruneMark,
		Dropped: len(m.Dropped) + paged(m.DroppedPages), Lists: len(log.Lists(m)), Files: m.Live(), Roles: m.Roles,
	}
	if m.Hint != nil {
		s.Manifest.Hint = &m.Hint.Position
	}
	if !opts.Objects {
		return s, nil
	}
	if err := s.count(ctx, st, m, f.Grace, opts.Progress); err != nil || opts.Files == nil {
		return s, err
	}
	return s, s.beside(ctx, opts.Files, &f, opts.Progress)
}

// beside counts the objects of the log in its second store.
func (s *Survey) beside(ctx context.Context, files store.Store, f *manifest.Format, progress func(int)) error {
	begin := func() { s.FilesBeside = &verify.Count{} }
	for info, err := range Listing(ctx, files, f.FileName(layout.FilePrefix), nil, begin) {
		if err != nil {
			return fmt.Errorf("listing the second store: %w", err)
		}
		s.FilesBeside.Objects++
		s.FilesBeside.Bytes += info.Size
		if progress != nil {
			progress(s.FilesBeside.Objects)
		}
	}
	return nil
}

// overdue is added to two grace periods: a compactor that keeps up deletes every folded object at a lower age.
const overdue = time.Hour

// count counts all objects.
func (s *Survey) count(ctx context.Context, st store.Store, m *state.Manifest, grace time.Duration, progress func(int)) error {
	n := 0
	begin := func() {
		n, s.Strange, s.Overdue = 0, 0, 0
		s.Objects, s.BeforeFloor = map[string]verify.Count{}, &verify.Count{}
	}
	for info, err := range Listing(ctx, st, "", nil, begin) {
		if err != nil {
			return err
		}
		if n++; progress != nil {
			progress(n)
		}
		kind := layout.KindOf(info.Key)
		if kind == layout.KindUnknown && !group.OfGroup(info.Key) {
			s.Strange++
		}
		c := s.Objects[kind]
		s.Objects[kind] = verify.Count{Objects: c.Objects + 1, Bytes: c.Bytes + info.Size}
		if p, ok := layout.ParseDataKey(info.Key); ok && m.Past(p) {
			s.BeforeFloor.Objects++
			s.BeforeFloor.Bytes += info.Size
			if age, known := info.Age(); !known || age > 2*grace+overdue {
				s.Overdue++
			}
		}
	}
	return nil
}

// paged counts the entries of pages.
func paged(pages []state.Page[uint64]) (n int) {
	for _, p := range pages {
		n += p.Count
	}
	return n
}

func (o *Options) leadership(ctx context.Context, st store.Store, prefix string) (Leadership, error) {
	l, err := leadership(ctx, st, prefix)
	if o.BadLock != nil && (errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat)) {
		o.BadLock(prefix, err)
		return l, nil
	}
	return l, err
}

// patience bounds how long the store may fail until nobody is asked any more who leads.
const patience = 2 * time.Minute

// Leader reads who leads, like [leader.Elector.Leader]. That tries for ever while the store fails, and Leader for
// two minutes.
func Leader(ctx context.Context, e *leader.Elector) (leader.Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("who leads could not be read within %v", patience))
	defer cancel()
	return e.Leader(ctx)
}

func leadership(ctx context.Context, st store.Store, prefix string) (Leadership, error) {
	e, err := leader.New(st, prefix, nil)
	if err != nil {
		return Leadership{}, err
	}
	rec, err := Leader(ctx, e)
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
	if l.Leads {
		l.Until = rec.Renewed.Add(rec.Validity)
	}
	if rec.ExpiredBy != rec.Holder {
		l.EndedBy = rec.ExpiredBy
	}
	return l, nil
}

// tailTries bounds how often the walk to the tail begins again because the floor has
// moved.
const tailTries = 100

// findTail walks to the tail of the log. It returns the tail, a manifest that was read after
// it was found, and when the last object on the way was written, if there was one.
func findTail(ctx context.Context, st store.Store, log *state.Log) (m *state.Manifest, at frame.Point, last time.Time, err error) {
	return walkToTail(ctx, st, log, (*state.Manifest).Tail, func(chain.Step) {})
}

// walkToTail is findTail from a place on, which begin returns. It is called again each time that the floor has
// moved: the steps that were passed to each before may not be the history.
func walkToTail(ctx context.Context, st store.Store, log *state.Log, begin func(*state.Manifest) frame.Point, each func(chain.Step)) (m *state.Manifest, at frame.Point, last time.Time, err error) {
	format := log.Format()
	newest := func(ctx context.Context) (fence.Position, error) {
		if m, err = log.Newest(ctx); err != nil {
			return fence.Position{}, err
		}
		return m.Floor.Position, nil
	}
	f := chain.Follower{Source: &chain.Source{Store: st, Log: format.Log, Limits: format.Limits}, Floor: newest}
	for range tailTries {
		if _, err := newest(ctx); err != nil {
			return nil, at, last, err
		}
		at, last = begin(m), time.Time{}
		var failed error
		for step, err := range f.Walk(ctx, at) {
			if failed = err; err == nil {
				at = step.To
				each(step)
				if step.Frame.Kind != frame.Seal {
					last = step.Frame.Time
				}
			}
		}
		if failed == nil {
			failed = f.Tail(ctx, at.Position)
		}
		if !errors.Is(failed, chain.ErrMoved) {
			return m, at, last, failed
		}
	}
	return nil, at, last, fmt.Errorf("the floor moved %d times while the tail was looked for; is the log compacted without pause?", tailTries)
}

// Text returns a cursor as text, "" if it is none.
func Text(cursor []byte) string {
	s := string(cursor)
	if strings.ContainsFunc(s, func(r rune) bool { return r == '\uFFFD' || r < 0x20 }) {
		return ""
	}
	return s
}
