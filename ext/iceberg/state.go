package iceberg

import (
	"context"
	"fmt"
	"hash/crc32"
	"iter"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// state is a version of a table.
type state struct {
	version int64         // 0 before the first
	object  store.Version // of its metadata
	doc     *metadata
	meta    *delta.Meta
	holds   map[fence.ID]held
	codec   *codec
	// manifests are those of the newest snapshot. Each has files of one log.
	manifests []*manifest
	files     map[string]*manifest // by path, of active files
}

// manifest is one that a snapshot lists.
type manifest struct {
	listed
	name string // the key
	key  avroKey
	// entries are there if they are few; nil otherwise.
	entries []entry
}

// keptEntries is how many entries of a manifest are kept in memory at most, so that a merge need not read them again.
const keptEntries = 256

func (m *manifest) live() int { return int(m.Added + m.Existing) }

// Version is [delta.State.Version].
func (s *state) Version() int64 {
	if s.version == 0 {
		return -1
	}
	return s.version
}

// Meta is [delta.State.Meta].
func (s *state) Meta() *delta.Meta { return s.meta }

// Len is [delta.State.Len].
func (s *state) Len() int { return len(s.files) }

// Owner is [delta.State.Owner].
func (s *state) Owner(path string) (log fence.ID, active bool) {
	m := s.files[path]
	if m == nil {
		return log, false
	}
	return m.key.log, true
}

// Files is [delta.State.Files].
func (s *state) Files() iter.Seq2[string, fence.ID] {
	return func(yield func(string, fence.ID) bool) {
		for path, m := range s.files {
			if !yield(path, m.key.log) {
				return
			}
		}
	}
}

// Source is [delta.State.Source].
func (s *state) Source(log fence.ID) (edits uint64, h delta.Hold, known bool) {
	of, known := s.holds[log]
	return of.Edits, of.Hold, known
}

// Holds is [delta.State.Holds].
func (s *state) Holds() map[fence.ID]delta.Hold {
	all := make(map[fence.ID]delta.Hold, len(s.holds))
	for log, h := range s.holds {
		all[log] = h.Hold
	}
	return all
}

// url is where engines find an object.
func (m *metadata) url(key string) string { return m.Location + "/" + key }

// keyOf is the reverse of url.
func (m *metadata) keyOf(url string) (string, error) {
	key, ok := strings.CutPrefix(url, m.Location+"/")
	if !ok {
		return "", fmt.Errorf("%w: %s is not below the table's location %s", delta.ErrDamaged, url, m.Location)
	}
	return key, nil
}

// body reads a manifest or a list, and compares its checksum.
func (t *table) body(ctx context.Context, m *metadata, url string) (string, []byte, error) {
	key, err := m.keyOf(url)
	if err != nil {
		return "", nil, err
	}
	of, ok := parseAvro(key)
	if !ok {
		return key, nil, fmt.Errorf("%w: %s has no name of a manifest", delta.ErrDamaged, key)
	}
	body, _, err := store.Read(ctx, t.root, key, &store.ReadOptions{Limit: maxAvro, Settle: t.settle})
	if err != nil {
		return key, nil, fmt.Errorf("iceberg: %w", err)
	}
	// guard:iceberg-checksum. A publisher uses a manifest, or a list of manifests, only if it has the checksum that its name
	// says.
	//
	//mutant:replace sum != of.crc => sum != of.crc && len(body) == 0
	if sum := crc32.Checksum(body, castagnoli); sum != of.crc {
		return key, nil, fmt.Errorf("%w: %s has the checksum %08x", delta.ErrDamaged, key, sum)
	}
	return key, body, nil
}

// list reads the manifests of a snapshot, without their entries.
func (t *table) list(ctx context.Context, m *metadata, id int64) ([]*manifest, error) {
	if id <= 0 {
		return nil, nil
	}
	s := m.snapshot(id)
	if s == nil {
		return nil, fmt.Errorf("%w: there is no snapshot %d", delta.ErrDamaged, id)
	}
	key, body, err := t.body(ctx, m, s.List)
	if err != nil {
		return nil, err
	}
	found, err := decodeList(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", delta.ErrDamaged, key, err)
	}
	all := make([]*manifest, 0, len(found))
	for _, l := range found {
		name, err := m.keyOf(l.Path)
		if err != nil {
			return nil, err
		}
		of, ok := parseAvro(name)
		if !ok {
			return nil, fmt.Errorf("%w: %s names %s, which is no manifest", delta.ErrDamaged, key, name)
		}
		all = append(all, &manifest{listed: l, name: name, key: of})
	}
	return all, nil
}

// entriesOf returns the entries of a manifest.
func (t *table) entriesOf(ctx context.Context, s *state, m *manifest) ([]entry, error) {
	if m.entries != nil {
		return m.entries, nil
	}
	key, body, err := t.body(ctx, s.doc, m.Path)
	if err != nil {
		return nil, err
	}
	all, err := s.codec.entries(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", delta.ErrDamaged, key, err)
	}
	if n := int(m.Added + m.Existing + m.Deleted); len(all) != n {
		return nil, fmt.Errorf("%w: %s has %d entries, and its list says %d", delta.ErrDamaged, key, len(all), n)
	}
	m.keep(all)
	return all, nil
}

func (m *manifest) keep(all []entry) {
	if len(all) <= keptEntries {
		m.entries = all
	}
}

// atOnce is how many manifests are read at the same time.
const atOnce = 8

// become makes the state that of a document. It reads the manifests that the state does not have yet. After an error the
// state is useless.
func (t *table) become(ctx context.Context, s *state, version int64, object store.Version, doc *metadata) error {
	meta, holds, err := doc.meta()
	if err != nil {
		return fmt.Errorf("%s: %w", versionKey(version), err)
	}
	if doc.Location != t.location {
		return fmt.Errorf("%w: the Iceberg table in %s says that it is at %s, and it was opened at %s: open it there, or publish to a new place", delta.ErrOptions, t.root.Traits().Name, doc.Location, t.location)
	}
	if s.codec == nil || s.doc.CurrentSchema != doc.CurrentSchema {
		if s.codec, err = doc.codec(); err != nil {
			return err
		}
	}
	s.version, s.object, s.doc, s.meta, s.holds = version, object, doc, meta, holds
	now, err := t.list(ctx, doc, doc.Current)
	if err != nil {
		return err
	}
	had := map[string]*manifest{}
	for _, m := range s.manifests {
		had[m.name] = m
	}
	var fresh []*manifest
	for i, m := range now {
		if old := had[m.name]; old != nil {
			now[i] = old
			delete(had, m.name)
		} else {
			fresh = append(fresh, m)
		}
	}
	for path, m := range s.files {
		if had[m.name] != nil {
			delete(s.files, path)
		}
	}
	s.manifests = now
	read := make([][]string, len(fresh))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, m := range fresh {
		g.Go(func() (err error) {
			read[i], err = t.paths(gctx, s, m)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, m := range fresh {
		for _, path := range read[i] {
			if s.files[path] != nil {
				return fmt.Errorf("%w: %s is active in %s and in %s", delta.ErrDamaged, path, s.files[path].name, m.name)
			}
			s.files[path] = m
		}
	}
	return nil
}

// paths returns the active files of a manifest.
func (t *table) paths(ctx context.Context, s *state, m *manifest) ([]string, error) {
	all, err := t.entriesOf(ctx, s, m)
	if err != nil {
		return nil, err
	}
	paths := make([]string, 0, len(all))
	for _, e := range all {
		path, err := s.doc.keyOf(e.File.Path)
		if err != nil {
			return nil, err
		}
		if e.Status != deleted {
			paths = append(paths, path)
		}
	}
	return paths, nil
}
