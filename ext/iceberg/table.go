package iceberg

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Format is the format of Iceberg, version 2. Location is the URL under which engines find the root of the table, where the
// files are: s3://bucket/prefix/file or file:///directory/file. The metadata has it in each path.
func Format(location string) delta.Format { return format{strings.TrimRight(location, "/")} }

type format struct{ location string }

func (format) Name() string { return "iceberg" }

// Check is [delta.Format.Check].
func (format) Check(_ *delta.Schema, by []string, f *delta.Footer) error { return check(by, f) }

func (f format) Open(p delta.Place) (delta.Table, error) {
	if !strings.Contains(f.location, ":/") {
		return nil, fmt.Errorf("%w: the location of an Iceberg table is a URL, such as s3://bucket/prefix, and not %q", delta.ErrOptions, f.location)
	}
	if strings.ContainsAny(f.location, "#?") {
		return nil, fmt.Errorf("%w: the location of an Iceberg table is %q: engines end a path at # or ?; choose a place without them", delta.ErrOptions, f.location)
	}
	return &table{location: f.location, root: p.Root, settle: p.Settle, clock: p.Clock, foreign: p.Foreign, failed: p.Failed}, nil
}

// check refuses files that have field ids: the name mapping is only for those that have none. It also refuses names that two columns of
// a manifest's partition would share.
func check(by []string, f *delta.Footer) error {
	// guard:iceberg-no-ids. A file with field ids is not published: they are others than the table's.
	//
	//mutant:replace f.Numbered != "" => f.Numbered == "none"
	if f.Numbered != "" {
		return fmt.Errorf("%w: the column %s has a field id, by which engines would take it for another one: write the file without field ids", delta.ErrSchema, f.Numbered)
	}
	had := map[string]string{}
	for _, name := range by {
		to := avroField(name)
		if other, ok := had[to]; ok {
			return fmt.Errorf("%w: Iceberg calls the partition columns %s and %s both %s: give one another name", delta.ErrSchema, other, name, to)
		}
		had[to] = name
	}
	return nil
}

// table is an Iceberg table in a store.
type table struct {
	location string
	root     store.Store
	settle   *store.SettleOptions
	clock    clock.Clock
	foreign  func(key, what string)
	failed   func(error)
	whole    *listing
	// keep is the oldest snapshot that new versions list, as of the last cleanup.
	keep int64
	// hinted is when the hint was written last. It named the version pointed then, and was the object hint.
	hinted  *clock.Instant
	hint    store.Version
	pointed int64
}

// listing is what lies in the table's folder.
type listing struct {
	versions map[int64]store.Info
	high     int64 // the newest version, or 0
	avro     []string
}

// look lists the versions from one on, or everything.
func (t *table) look(ctx context.Context, from int64, whole bool) (*listing, error) {
	l := &listing{versions: map[int64]store.Info{}}
	opts := &store.ListOptions{StartAfter: prefix + "v"}
	switch {
	case whole:
		opts = nil
	case from > 1:
		opts.StartAfter = versionKey(from-1) + "~"
	}
	for info, err := range store.ListAll(ctx, t.root, prefix, opts, t.settle) {
		if err != nil {
			return nil, err
		}
		v, ok := parseVersion(info.Key)
		_, avro := parseAvro(info.Key)
		switch {
		case ok:
			l.versions[v], l.high = info, max(l.high, v)
		case avro:
			l.avro = append(l.avro, info.Key)
		case info.Key != hintKey:
			t.foreign(info.Key, "no object of this package has such a name; it is left alone")
		}
	}
	return l, nil
}

// loadTries bounds how often a load begins again because objects were deleted while it read them.
const loadTries = 8

// Load is [delta.Table.Load].
func (t *table) Load(ctx context.Context, known delta.State, whole bool) (delta.State, error) {
	s, _ := known.(*state)
	var last error
	for range loadTries {
		if s == nil {
			s = &state{files: map[string]*manifest{}}
		}
		before := s.version
		l, err := t.look(ctx, before, whole)
		if err == nil {
			err = t.follow(ctx, s, l)
		}
		if t.whole = nil; err == nil && whole {
			t.whole = l
		}
		if err == nil {
			return s, nil
		}
		if s, last = nil, err; !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: objects that the newest version needs are gone: %w; restore them from a backup, or publish to a new place", delta.ErrDamaged, last)
}

// follow makes a state that of the newest version of a listing.
func (t *table) follow(ctx context.Context, s *state, l *listing) error {
	// guard:iceberg-newest-gone. A publisher stops if a version is gone that it knows or that the hint names, and no newer one
	// is there.
	//
	//mutant:replace l.high < s.version => l.high < 0
	if l.high < s.version {
		return fmt.Errorf("%w: %s is gone, and no newer version is there: restore it from a backup, or publish to a new place", delta.ErrDamaged, versionKey(s.version))
	}
	if s.version == 0 {
		hinted, _, err := t.readHint(ctx)
		if err != nil {
			return err
		}
		if l.high < hinted {
			// The hint may be newer than the listing.
			if _, _, err := store.Read(ctx, t.root, versionKey(hinted), &store.ReadOptions{Length: 1, Settle: t.settle}); err == nil {
				return fmt.Errorf("iceberg: %s came meanwhile: %w", versionKey(hinted), store.ErrNotFound)
			} else if !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return fmt.Errorf("%w: %s names %s, which is gone, and no newer version is there: restore it from a backup, or publish to a new place", delta.ErrDamaged, hintKey, versionKey(hinted))
		}
	}
	if l.high == 0 {
		return nil
	}
	newest := l.versions[l.high]
	// guard:iceberg-same. A publisher goes on from a version that it knows only if the listing shows the object that it has
	// read or written.
	//
	//mutant:replace newest.Version == s.object => true
	if l.high == s.version && newest.Version == s.object {
		return nil
	}
	body, info, err := store.Read(ctx, t.root, newest.Key, &store.ReadOptions{Limit: maxMetadata, Settle: t.settle})
	if err != nil {
		return err
	}
	if info.Version != newest.Version {
		return fmt.Errorf("iceberg: %s has been deleted and created again since it was listed: %w", newest.Key, store.ErrNotFound)
	}
	doc, err := decodeMetadata(newest.Key, body)
	if err != nil {
		return err
	}
	return t.become(ctx, s, l.high, newest.Version, doc)
}

// Newer is [delta.Table.Newer].
func (t *table) Newer(ctx context.Context, known delta.State) (bool, error) {
	_, _, err := store.Read(ctx, t.root, versionKey(known.(*state).version+1), &store.ReadOptions{Length: 1, Settle: t.settle})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// First is [delta.Table.First].
func (t *table) First() string { return versionKey(1) }

// hintEvery is how often the hint is written at most: some stores take one write of a key in a second.
const hintEvery = time.Second

// Owes is [delta.Table.Owes]: the hint.
func (t *table) Owes(delta.State) (bool, time.Duration) {
	if t.hinted == nil {
		return true, time.Millisecond
	}
	return true, max(hintEvery-t.clock.Now().Sub(*t.hinted), time.Millisecond)
}

// Settle is [delta.Table.Settle]: it moves the hint forward.
func (t *table) Settle(ctx context.Context, known delta.State) (bool, error) {
	s := known.(*state)
	if s.version == 0 {
		return false, nil
	}
	now := t.clock.Now()
	t.hinted = &now
	if _, err := t.point(ctx, s.version); err != nil {
		return false, fmt.Errorf("iceberg: %s does not name version %d yet: %w", hintKey, s.version, err)
	}
	return false, nil
}

func (t *table) readHint(ctx context.Context) (version int64, object store.Version, err error) {
	body, info, err := store.Read(ctx, t.root, hintKey, &store.ReadOptions{Limit: 1 << 10, Settle: t.settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return 0, "", nil
	case errors.Is(err, store.ErrTooLarge):
		return 0, info.Version, nil
	case err != nil:
		return 0, "", err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
	if err != nil || n < base || n > base+most {
		n = base // it says nothing
	}
	return n - base, info.Version, nil
}

// point moves the hint forward to a version. True says that it names that version now, or a newer one.
func (t *table) point(ctx context.Context, version int64) (bool, error) {
	body, opts := []byte(strconv.FormatInt(base+version, 10)), &store.WriteOptions{Settle: t.settle}
	for range 2 {
		old, object := t.pointed, t.hint
		var err error
		if object == "" {
			if old, object, err = t.readHint(ctx); err != nil {
				return false, err
			}
		}
		// guard:iceberg-hint-forward. A publisher swaps the hint only to a newer version than it names.
		//
		//mutant:replace old >= version => old < 0
		if old >= version {
			return true, nil
		}
		var info store.Info
		if object == "" {
			info, err = store.Create(ctx, t.root, hintKey, body, opts)
		} else {
			info, err = store.Swap(ctx, t.root, hintKey, body, object, opts)
		}
		if t.hint, t.pointed = "", 0; err == nil {
			t.hint, t.pointed = info.Version, version
			return true, nil
		}
		if !errors.As(err, new(*store.ConflictError)) {
			return false, err
		}
	}
	return false, nil
}

// Expire is [delta.Table.Expire].
func (t *table) Expire(ctx context.Context, known delta.State) (map[fence.ID]uint64, func(context.Context) error, error) {
	s := known.(*state)
	l := t.whole
	if t.whole = nil; l == nil {
		var err error
		if l, err = t.look(ctx, 0, true); err != nil {
			return nil, nil, err
		}
	}
	first := delta.Oldest(l.versions, l.high, s.meta.Retention)
	needed, floor, keep, err := t.oldest(ctx, s, l, first)
	switch {
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.Is(err, store.ErrNotFound):
		return nil, nil, nil // another publisher is at it
	case errors.Is(err, delta.ErrDamaged), errors.Is(err, delta.ErrForeign):
		t.foreign(versionKey(first), fmt.Sprintf("nothing older is deleted, because this version cannot be read: %v", err))
		return nil, nil, nil
	case err != nil:
		t.failed(fmt.Errorf("nothing older than version %d is deleted yet: %w", first, err))
		return nil, nil, nil
	}
	return needed, func(ctx context.Context) error { return t.clean(ctx, l, floor, keep) }, nil
}

// oldest returns the manifest of each log that a version names. It also returns the version before which nothing is needed but
// some objects.
func (t *table) oldest(ctx context.Context, s *state, l *listing, version int64) (needed map[fence.ID]uint64, floor int64, keep map[string]bool, err error) {
	doc := s.doc
	if version != s.version {
		body, info, err := store.Read(ctx, t.root, versionKey(version), &store.ReadOptions{Limit: maxMetadata, Settle: t.settle})
		if err == nil && info.Version != l.versions[version].Version {
			err = fmt.Errorf("%s was replaced: %w", versionKey(version), store.ErrNotFound)
		}
		if err != nil {
			return nil, 0, nil, err
		}
		if doc, err = decodeMetadata(versionKey(version), body); err != nil {
			return nil, 0, nil, err
		}
	}
	_, holds, err := doc.meta()
	if err != nil {
		return nil, 0, nil, err
	}
	needed = map[fence.ID]uint64{}
	for log, h := range holds {
		needed[log] = h.Manifest
	}
	if l.high != s.version {
		return needed, 0, nil, nil // what the newest version lists is not known
	}
	t.keep = max(doc.Current, t.keep)
	floor = version
	// guard:iceberg-listed-last. Cleanup deletes nothing that a snapshot needs which the newest version lists.
	//
	//mutant:replace len(s.doc.Snapshots) > 0 && s.doc.Snapshots[0].ID < doc.Current => false
	if len(s.doc.Snapshots) > 0 && s.doc.Snapshots[0].ID < doc.Current {
		doc, floor = s.doc, s.doc.Snapshots[0].ID
	}
	current := min(floor, doc.Current)
	keep = map[string]bool{}
	manifests := s.manifests
	if current > 0 {
		list, err := doc.keyOf(doc.snapshot(current).List)
		if err != nil {
			return nil, 0, nil, err
		}
		keep[list] = true
		if current != s.doc.Current {
			if manifests, err = t.list(ctx, doc, current); err != nil {
				return nil, 0, nil, err
			}
		}
	}
	for _, m := range manifests {
		keep[m.name] = true
	}
	return needed, floor, keep, nil
}

// clean deletes what versions before one need, but for what it needs too.
func (t *table) clean(ctx context.Context, l *listing, first int64, keep map[string]bool) error {
	if keep == nil {
		return nil
	}
	var old, files []string
	for v := range l.versions {
		if v < first {
			old = append(old, versionKey(v))
		}
	}
	for _, key := range l.avro {
		// guard:iceberg-clean. Cleanup deletes a manifest or a list only if it belongs to a version before the oldest one within the
		// retention, and that version does not name it.
		//
		//mutant:replace of.version < first && !keep[key] => of.version > 0 && !keep[key]
		if of, _ := parseAvro(key); of.version < first && !keep[key] {
			files = append(files, key)
		}
	}
	if len(old)+len(files) == 0 {
		return nil
	}
	// guard:iceberg-hint-first. Cleanup deletes nothing until the hint names a version that stays.
	//
	//mutant:replace t.point(ctx, first); err != nil || !moved => true, error(nil); err != nil || !moved
	if moved, err := t.point(ctx, first); err != nil || !moved {
		return err // the next cleanup deletes them
	}
	if err := store.DeleteAll(ctx, t.root, old, t.settle); err != nil {
		return err
	}
	return store.DeleteAll(ctx, t.root, files, t.settle)
}
