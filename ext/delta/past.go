package delta

import (
	"context"
	"maps"
	"slices"
	"sort"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// maxPast is how many versions a publisher remembers, at about 100 bytes each. It reads older ones
// from the store again.
const maxPast = 1 << 17

// past is what a publisher remembers of the versions from its state's checkpoint to the state's own.
// It belongs to a state, which is given up if a load does not get from there to the newest version.
// So after a load it has no version that a zombie has created.
type past struct {
	first   int64  // the version of commits[0]
	commits []seen // one for each version
	pinned  map[fence.ID][]pinned
}

// seen is a commit that a load has applied.
type seen struct {
	object store.Version // empty if it is not known
	sum    sum           // of the state after it
}

// pinned says that versions name a manifest of a log, from one on.
type pinned struct {
	from     int64
	manifest uint64
}

// begin forgets everything but one version.
func (p *past) begin(s *state, object store.Version) {
	*p = past{first: s.version, commits: []seen{{object, s.sum}}, pinned: map[fence.ID][]pinned{}}
	for log, h := range s.Holds() {
		p.pinned[log] = []pinned{{s.version, h.Manifest}}
	}
}

// add remembers the next version, which a state has now. The actions are those of its commit.
func (p *past) add(s *state, object store.Version, actions []action) {
	version := s.version
	if p.pinned == nil || len(p.commits) >= maxPast+maxPast/4 {
		p.forget(version - maxPast)
	}
	if len(p.commits) == 0 {
		p.first = version
	}
	p.commits = append(p.commits, seen{object, s.sum})
	for _, a := range actions {
		if a.Domain == nil {
			continue
		}
		// Unpublish keeps the manifest of a log that leaves the table, and releases the log's pins itself.
		log, h, _ := a.Domain.hold()
		if log == (fence.ID{}) {
			continue // it is about something else
		}
		all := p.pinned[log]
		if n := len(all); n == 0 || all[n-1].manifest != h.Manifest {
			p.pinned[log] = append(all, pinned{version, h.Manifest})
		}
	}
}

// forget forgets the versions before one.
func (p *past) forget(version int64) {
	if p.pinned == nil {
		p.pinned = map[fence.ID][]pinned{}
	}
	n := min(max(version-p.first, 0), int64(len(p.commits)))
	p.commits, p.first = slices.Delete(p.commits, 0, int(n)), p.first+n
	for log, all := range p.pinned {
		p.pinned[log] = slices.Delete(all, 0, max(since(all, p.first), 0))
	}
}

// since returns the index of what holds at a version, or -1.
func since(all []pinned, version int64) int {
	return sort.Search(len(all), func(i int) bool { return all[i].from > version }) - 1
}

// commit returns what is remembered of a version. It returns false if that is nothing, or if the listing
// shows another object.
func (p *past) commit(l *listing, version int64) (seen, bool) {
	i := version - p.first
	if i < 0 || i >= int64(len(p.commits)) {
		return seen{}, false
	}
	c := p.commits[i]
	// guard:delta-past-same. Log cleanup uses the manifest that a publisher remembers of a version only
	// if the listing shows the object that the publisher has read.
	//
	//mutant:replace c.object == l.commits[version].Version => true
	return c, c.object != "" && c.object == l.commits[version].Version
}

// at returns the manifest that a version names for each log, if the version is remembered.
func (p *past) at(l *listing, version int64) (map[fence.ID]uint64, bool) {
	if _, ok := p.commit(l, version); !ok {
		return nil, false
	}
	all := map[fence.ID]uint64{}
	for log, list := range p.pinned {
		if k := since(list, version); k >= 0 {
			all[log] = list[k].manifest
		}
	}
	return all, true
}

// known is [table.at] for a version of which a publisher remembers each commit from the checkpoint on. It
// reads only the checkpoint, and compares it with the proof of its commit. It returns false if the
// publisher does not remember enough.
func (t *table) known(ctx context.Context, l *listing, p *past, version int64) (base lastCheckpoint, ok bool, err error) {
	for v := version; v > 0; v-- {
		c, ok := p.commit(l, v)
		if !ok {
			return base, false, nil
		}
		info, there := l.checkpoints[v]
		if !there {
			continue
		}
		body, err := t.read(ctx, info, &store.ReadOptions{Limit: maxCheckpoint, Settle: t.settle})
		if err != nil {
			return base, false, err
		}
		// guard:delta-clean-right. Log cleanup relies on a checkpoint only if it has the checksum that
		// the publisher remembers of that version; otherwise it goes on to an older one.
		//
		//mutant:replace s.sum == c.sum => s.sum != (sum{}) && c.sum != (sum{})
		if s, err := decodeCheckpoint(v, body); err == nil && s.sum == c.sum {
			return s.hint(int(info.Size)), true, nil
		}
	}
	return base, false, nil
}

// manifests returns the manifest that a state names for each log.
func (s *state) manifests() map[fence.ID]uint64 {
	all := map[fence.ID]uint64{}
	for log, h := range s.Holds() {
		all[log] = h.Manifest
	}
	return all
}

// cleanable reports whether there is something before a checkpoint at or before a version. Whether
// the checkpoint is right is not known.
func (l *listing) cleanable(version int64) bool {
	var base int64
	for v := range l.checkpoints {
		if v <= version {
			base = max(base, v)
		}
	}
	before := func(v int64) bool { return v < base }
	return slices.ContainsFunc(slices.Collect(maps.Keys(l.commits)), before) || slices.ContainsFunc(slices.Collect(maps.Keys(l.checkpoints)), before)
}
