package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

const (
	// maxCheckpoint bounds a checkpoint, in bytes.
	maxCheckpoint = 512 << 20
	// loadTries bounds how often a load begins again because versions were deleted while it
	// read them.
	loadTries = 8
	// atOnce is how many objects are read at the same time, and bytesAtOnce how many bytes, if
	// that is more than one object.
	atOnce      = 16
	bytesAtOnce = 32 << 20
)

// table is the Delta log in a store.
type table struct {
	st     store.Store
	settle *store.SettleOptions
	clock  clock.Clock
	// foreign tells of what another program has left in the Delta log.
	foreign func(key, what string)
}

// listing is what lies in the Delta log.
type listing struct {
	commits, checkpoints map[int64]store.Info
	high                 int64 // the highest commit, or -1
}

// list lists the Delta log, from a version on.
func (t *table) list(ctx context.Context, from int64) (*listing, error) {
	l := &listing{commits: map[int64]store.Info{}, checkpoints: map[int64]store.Info{}, high: -1}
	var opts *store.ListOptions
	if from > 0 {
		// Nothing sorts between the last key of a version and the first one of the next.
		opts = &store.ListOptions{StartAfter: commitKey(from-1) + "~"}
	}
	for info, err := range store.ListAll(ctx, t.st, logPrefix, opts, t.settle) {
		if err != nil {
			return nil, err
		}
		switch v, k := parseKey(info.Key); {
		case k == aCommit && v >= from:
			l.commits[v], l.high = info, max(l.high, v)
		case k == aCheckpoint && v >= from:
			l.checkpoints[v] = info
		case k == notOurs:
			t.foreign(info.Key, "no object of this package has such a name; it is left alone")
		}
	}
	return l, nil
}

// errGap: a version is missing that a load needs. It may have been deleted meanwhile.
var errGap = errors.New("a version is missing")

// loadFrom returns the newest state, and the listing that it has made from a version on. It begins after the call: a
// version that was created before is in it. Known is an earlier state, which it may change and return; with nil it lists
// everything. The state has the version -1 if there is no table.
func (t *table) loadFrom(ctx context.Context, known *state, from int64) (*state, *listing, error) {
	if known != nil && known.version >= 0 {
		l, err := t.list(ctx, from)
		if err != nil {
			return nil, nil, err
		}
		// guard:delta-warm-fits. A publisher goes on from a state that it knows only if all later
		// commits are there and fit.
		//
		//mutant:replace err == nil { => true {
		if err := t.follow(ctx, known, l); err == nil {
			return known, l, nil
		} else if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrDamaged) && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, err
		}
	}
	var last error
	for range loadTries {
		l, err := t.list(ctx, 0)
		if err != nil {
			return nil, nil, err
		}
		s, err := t.cold(ctx, l)
		if err == nil || !errors.Is(err, errGap) && !errors.Is(err, store.ErrNotFound) {
			return s, l, remedied(err)
		}
		last = err
	}
	if errors.Is(last, store.ErrNotFound) {
		last = fmt.Errorf("%w: objects vanish while they are read: %w", ErrDamaged, last)
	}
	return nil, nil, remedied(last)
}

// remedied says what to do about a Delta log that is damaged. What another program has written has its
// own remedy.
func remedied(err error) error {
	if !errors.Is(err, ErrDamaged) || errors.Is(err, ErrForeign) {
		return err
	}
	return fmt.Errorf("%w; restore the object from a backup, or publish to a new place", err)
}

// cold builds the newest state from the newest checkpoint that fits the commits.
func (t *table) cold(ctx context.Context, l *listing) (*state, error) {
	if l.high < 0 && len(l.checkpoints) == 0 {
		return newState(), nil
	}
	var why []error
	bases := slices.Sorted(maps.Keys(l.checkpoints))
	slices.Reverse(bases)
	for _, v := range bases {
		if v > l.high {
			t.foreign(checkpointKey(v), fmt.Sprintf("the newest commit is %d; the checkpoint is not used", l.high))
			continue
		}
		s, err := t.base(ctx, l, v)
		if err == nil {
			err = t.follow(ctx, s, l)
		}
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrDamaged) {
			return nil, err
		}
		// What is wrong with a commit shows from every checkpoint: say that first, and once.
		if len(why) == 0 || why[len(why)-1].Error() != err.Error() {
			why = append(why, err)
		}
		if !errors.Is(err, ErrForeign) {
			t.foreign(checkpointKey(v), fmt.Sprintf("it does not fit the commits and is not used: %v", err))
		}
	}
	if _, ok := l.commits[0]; ok {
		s := newState()
		err := t.follow(ctx, s, l)
		if err == nil {
			return s, nil
		}
		if len(why) == 0 || why[len(why)-1].Error() != err.Error() {
			why = append(why, err)
		}
	} else if len(why) == 0 {
		why = append(why, fmt.Errorf("%w: %w: %s is gone, and no checkpoint after it can be read", ErrDamaged, errGap, commitKey(0)))
	}
	return nil, errors.Join(why...)
}

// base reads a checkpoint and checks it against the commit of its version, or the one after.
func (t *table) base(ctx context.Context, l *listing, version int64) (*state, error) {
	body, err := t.read(ctx, l.checkpoints[version], &store.ReadOptions{Limit: maxCheckpoint, Settle: t.settle})
	if err != nil {
		return nil, err
	}
	s, err := decodeCheckpoint(version, body)
	if err != nil {
		return nil, err
	}
	s.past.begin(s, l.commits[version].Version)
	if _, ok := l.commits[version]; !ok {
		if _, next := l.commits[version+1]; next {
			return s, nil // the next commit proves it
		}
		return nil, fmt.Errorf("%w: %w: %s is gone, which proves the checkpoint", ErrDamaged, errGap, commitKey(version))
	}
	proof, err := t.proof(ctx, l, version)
	if err != nil {
		return nil, err
	}
	// guard:delta-checkpoint. A Delta checkpoint is used only if its file count and checksum fit the
	// commit of its version.
	//
	//mutant:replace return s, fits(version, proof, s.proof()) => _ = proof; return s, nil
	return s, fits(version, proof, s.proof())
}

func fits(version int64, actions []action, got proof) error {
	want, by := proofOf(actions)
	if want == nil {
		if by == "" {
			by = "another program"
		}
		return fmt.Errorf("%w: %s is by %q; restore the table to version %d by deleting what comes after it, or publish to a new place", ErrForeign, commitKey(version), by, version-1)
	}
	if want.Files != got.Files || want.Sum != got.Sum {
		return fmt.Errorf("%w: by %s version %d has %d active files with the checksum %s, and as it was read %d files with %s",
			ErrDamaged, commitKey(version), version, want.Files, text(want.Sum), got.Files, text(got.Sum))
	}
	return nil
}

func text(s sum) string {
	b, _ := s.MarshalText() // never fails
	return string(b)
}

// follow applies the commits after a state, up to the highest there is.
func (t *table) follow(ctx context.Context, s *state, l *listing) error {
	return t.followTo(ctx, s, l, l.high)
}

func (t *table) followTo(ctx context.Context, s *state, l *listing, to int64) error {
	if to < s.version {
		return fmt.Errorf("%w: %w: %s is gone", ErrDamaged, errGap, commitKey(s.version))
	}
	for s.version < to {
		first := s.version + 1
		n := l.together(first, min(to-s.version, atOnce))
		bodies := make([][]action, n)
		g, gctx := errgroup.WithContext(ctx)
		for i := range bodies {
			if _, ok := l.commits[first+int64(i)]; !ok {
				return fmt.Errorf("%w: %w: %s is gone, and later versions are there", ErrDamaged, errGap, commitKey(first+int64(i)))
			}
			g.Go(func() (err error) {
				bodies[i], err = t.commit(gctx, l, first+int64(i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for _, actions := range bodies {
			if err := s.step(actions); err != nil {
				return err
			}
			s.past.add(s, l.commits[s.version].Version, actions)
		}
	}
	return nil
}

// together returns how many commits from a version on can be in memory at once: one, or up to most.
func (l *listing) together(first, most int64) int64 {
	bytes := int64(0)
	for n := range most {
		if bytes += l.commits[first+n].Size; n > 0 && bytes > bytesAtOnce {
			return n
		}
	}
	return most
}

// step applies a commit and checks that it proves the result.
func (s *state) step(actions []action) error {
	version := s.version + 1
	p, _ := proofOf(actions)
	if p == nil {
		return fits(version, actions, proof{})
	}
	if err := s.apply(actions); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, commitKey(version), err)
	}
	if !s.protocol.ours() {
		return fmt.Errorf("%w: %s sets the protocol %+v, which this program does not know; restore the table to version %d by deleting what comes after it, or publish to a new place", ErrForeign, commitKey(version), given(s.protocol), version-1)
	}
	// guard:delta-fits. A publisher uses a state only if its file count and its checksum fit the last
	// commit.
	//
	//mutant:replace fits(version, actions, s.proof()) => fits(version, actions, *p)
	return fits(version, actions, s.proof())
}

// read reads an object of the Delta log that a listing has shown.
func (t *table) read(ctx context.Context, listed store.Info, opts *store.ReadOptions) ([]byte, error) {
	body, info, err := store.Read(ctx, t.st, listed.Key, opts)
	// guard:delta-listed. A publisher reads only objects that its listing has shown: what it reads is
	// the table as of that listing.
	//
	//mutant:replace info.Version != listed.Version => info.Version == ""
	if err == nil && info.Version != listed.Version {
		return nil, fmt.Errorf("%s has been deleted and created again since it was listed: %w", listed.Key, store.ErrNotFound)
	}
	return body, err
}

// create creates the version after s. It returns false if somebody else was quicker. True does
// not say that the version is in the table: a load that begins later must show it.
func (t *table) create(ctx context.Context, s *state, operation string, actions []action) (bool, error) {
	p, err := s.after(actions)
	if err != nil {
		return false, fmt.Errorf("delta: version %d: %w", s.version+1, err)
	}
	p.Nonce = fence.ID(uuid.New())
	info := action{Info: &commitInfo{
		Timestamp: t.clock.Wall().UnixMilli(), Operation: operation, Parameters: map[string]string{}, EngineInfo: "fencepost", Fencepost: &p,
	}}
	body, err := encodeCommit(append([]action{info}, actions...))
	if err != nil {
		return false, err
	}
	if len(body) > maxCommit {
		return false, fmt.Errorf("delta: version %d has %d bytes; at most %d are possible; compact the table's files first", s.version+1, len(body), maxCommit)
	}
	unreadable := func(line int, err error) error {
		return fmt.Errorf("delta: version %d could not be read again: line %d: %w; compact the table's files first", s.version+1, line, err)
	}
	if err := affordable(body, unreadable); err != nil {
		return false, err
	}
	// guard:delta-create. A Delta version is created only if it is absent, and is never overwritten.
	//
	//mutant:replace store.Create(ctx, t.st, commitKey(s.version+1), body, &store.WriteOptions{Settle: t.settle}) => t.st.Put(ctx, commitKey(s.version+1), body, nil)
	created, err := store.Create(ctx, t.st, commitKey(s.version+1), body, &store.WriteOptions{Settle: t.settle})
	if conflict := (*store.ConflictError)(nil); errors.As(err, &conflict) {
		return false, nil
	}
	if err == nil {
		err = s.apply(actions)
	}
	if err != nil {
		return false, err
	}
	s.past.add(s, created.Version, actions)
	return true, nil
}

// lastCheckpoint is the content of _last_checkpoint, a hint for readers.
type lastCheckpoint struct {
	Version int64 `json:"version"`
	Size    int   `json:"size"`
	Bytes   int   `json:"sizeInBytes"`
	Adds    int   `json:"numOfAddFiles"`
	// Nonce makes the bytes of each write unlike all others.
	Nonce fence.ID `json:"fencepostNonce"`
}

// checkpoint writes the checkpoint of a state, and moves _last_checkpoint forward to it.
func (t *table) checkpoint(ctx context.Context, s *state, retention time.Duration) error {
	since := t.clock.Wall().Add(-retention).UnixMilli()
	// A publisher that runs for years does not keep all files that were ever removed in memory.
	maps.DeleteFunc(s.gone, func(_ string, r *remove) bool { return r.Deleted <= since })
	body, err := encodeCheckpoint(s, since)
	if err != nil {
		return err
	}
	_, err = store.Create(ctx, t.st, checkpointKey(s.version), body, &store.WriteOptions{Settle: t.settle})
	if err != nil && !errors.As(err, new(*store.ConflictError)) { // it is the same state, whoever wrote it
		return err
	}
	_, err = t.point(ctx, s.hint(len(body)))
	return err // false: somebody else was quicker; the next checkpoint moves the hint, or cleanup does
}

// hint returns what _last_checkpoint says of the checkpoint of a state.
func (s *state) hint(bytes int) lastCheckpoint {
	return lastCheckpoint{Version: s.version, Size: 2 + len(s.txns) + len(s.domains) + len(s.files) + len(s.gone), Bytes: bytes, Adds: len(s.files), Nonce: fence.ID(uuid.New())}
}

// point moves _last_checkpoint forward to a checkpoint. True says that the hint names that
// checkpoint now, or a newer one. False says that somebody else was quicker.
func (t *table) point(ctx context.Context, last lastCheckpoint) (bool, error) {
	doc, err := json.Marshal(last)
	if err != nil {
		return false, fmt.Errorf("delta: %w", err)
	}
	opts := &store.WriteOptions{Settle: t.settle}
	old, info, err := store.Read(ctx, t.st, lastKey, &store.ReadOptions{Limit: 1 << 20, Settle: t.settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		_, err = store.Create(ctx, t.st, lastKey, doc, opts)
	case err != nil:
		return false, fmt.Errorf("delta: %s: %w", lastKey, err)
	default:
		// guard:delta-last-forward. A publisher swaps _last_checkpoint only to a newer checkpoint than
		// it names.
		//
		//mutant:replace now.Version >= last.Version => now.Version < 0
		if now := (lastCheckpoint{}); json.Unmarshal(old, &now) == nil && now.Version >= last.Version {
			return true, nil
		}
		_, err = store.Swap(ctx, t.st, lastKey, doc, info.Version, opts)
	}
	if errors.As(err, new(*store.ConflictError)) {
		return false, nil
	}
	return err == nil, err
}
