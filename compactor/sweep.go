package compactor

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

const (
	// sweepBatch is how many keys are collected before they are deleted. The
	// listing is ended first: a store may not let one delete while it lists.
	sweepBatch = 10_000
	deleteAt   = 1000
	// tmpAge is how old a temporary object must be to be swept.
	tmpAge = 24 * time.Hour
)

// rule says which objects below a prefix may be deleted.
type rule struct {
	kind, prefix string
	doomed       func(context.Context, store.Info) (bool, error)
}

// data are the log's objects before a floor that is durable, but the seals of the
// chain.
func (p *pass) data(s *survey) rule {
	floor := s.horizon.Floor.Position
	return rule{"data", layout.DataPrefix, func(ctx context.Context, info store.Info) (bool, error) {
		pos, ok := layout.ParseDataKey(info.Key)
		if !ok || !pos.Before(floor) {
			return false, nil
		}
		if pos.Epoch == floor.Epoch {
			return true, nil // its seal is not written yet, or at the floor or behind it
		}
		// guard:keep-seals. The seal is what stops the zombies of its epoch, for
		// ever: with it gone, the next create of one that slept for a year would be
		// applied, and acknowledged.
		//
		//mutant:replace pos != seal.Position => pos != seal.Position || true
		//mutant:replace info.Size > frame.HeaderSize => true
		seal, known, err := p.log.SealOf(ctx, s.m, pos.Epoch)
		if err != nil {
			return false, err
		}
		if !known {
			// The epoch was never on the chain, as far as m knows. A seal is a bare header;
			// whatever is larger is none.
			return info.Size > frame.HeaderSize, nil
		}
		return pos != seal.Position, nil
	}}
}

// versions are the manifests before the mark that nobody holds.
func (p *pass) versions(s *survey) rule {
	return rule{"manifest", layout.ManifestPrefix, func(_ context.Context, info store.Info) (bool, error) {
		v, ok := layout.ParseManifestKey(info.Key)
		return ok && s.superseded(v), nil
	}}
}

// tmp are what probes have left.
var tmp = rule{"tmp", "tmp/", func(_ context.Context, info store.Info) (bool, error) {
	name := strings.TrimPrefix(info.Key, "tmp/")
	id, err := uuid.Parse(name)
	age, known := age(info)
	return err == nil && id.String() == name && known && age >= tmpAge, nil
}}

// orphans are what was uploaded and never named by a manifest or a commit, and never
// will be.
func (p *pass) orphans(s *survey) []rule {
	// Segments and lists: their compactor is fenced, since a later epoch is in m.
	//
	// guard:orphan-named. What an earlier one did name is part of the log.
	//
	//mutant:replace return p.named(ctx, s.m, set) => return nil
	named := lazy(func(ctx context.Context, set *keySet) error { return p.named(ctx, s.m, set) })
	own := func(parse func(string) (layout.Role, fence.Epoch, bool)) func(context.Context, store.Info) (bool, error) {
		return func(ctx context.Context, info store.Info) (bool, error) {
			if !s.fencedUpload(info.Key, parse) {
				return false, nil
			}
			return absent(ctx, named, info.Key)
		}
	}
	// guard:orphan-files. Files: their epoch is sealed and folded, so every edit of it is
	// in m, and files of another epoch no edit adds. Before that a commit that names
	// them may still be on the chain, or on its way.
	//
	//mutant:replace !s.sealedFile(info.Key) => false
	live := lazy(func(ctx context.Context, set *keySet) error { return p.live(ctx, s.m, set) })
	file := func(ctx context.Context, info store.Info) (bool, error) {
		if !s.sealedFile(info.Key) {
			return false, nil
		}
		return absent(ctx, live, info.Key)
	}
	return []rule{
		{"orphan", segmentPrefix, own(layout.ParseSegmentKey)},
		{"orphan", listPrefix, own(layout.ParseListKey)},
		{"orphan", filePrefix, file},
	}
}

const segmentPrefix, listPrefix, filePrefix = "segment/", "list/", "file/"

// fencedUpload tells whether a key is one that a compactor or a writer of an earlier
// epoch made: one that was fenced by what m says of its role.
func (s *survey) fencedUpload(key string, parse func(string) (layout.Role, fence.Epoch, bool)) bool {
	role, epoch, ok := parse(key)
	if role == layout.Writer {
		return ok && epoch < s.m.Roles[layout.Writer].Epoch
	}
	return ok && uint64(epoch) < s.epoch
}

// sealedFile tells whether a key is that of a file whose epoch is over and folded.
func (s *survey) sealedFile(key string) bool {
	epoch, _, _, ok := layout.ParseFileKey(key)
	return ok && epoch < s.m.Floor.Position.Epoch
}

// named collects the segments and lists that m refers to, or that are still to be
// deleted because it does not any more.
func (p *pass) named(ctx context.Context, m *state.Manifest, set *keySet) error {
	for s, err := range p.log.Segments(ctx, m, 0) {
		if err != nil {
			return err
		}
		set.add(s.Key)
	}
	for _, key := range p.log.Lists(m) {
		set.add(key)
	}
	return p.dropped(ctx, m, set)
}

// live collects the files of the table likewise.
//
// guard:orphan-live. What was committed is part of it.
//
//mutant:replace set.add(f.Key) => _ = f
func (p *pass) live(ctx context.Context, m *state.Manifest, set *keySet) error {
	for f, err := range p.log.Files(ctx, m) {
		if err != nil {
			return err
		}
		set.add(f.Key)
	}
	return p.dropped(ctx, m, set)
}

// dropped adds what pins or the grace period still hold.
//
// guard:orphan-dropped. Nothing names it any more but manifests that are promised.
//
//mutant:replace set.add(d.Key) => _ = d
func (p *pass) dropped(ctx context.Context, m *state.Manifest, set *keySet) error {
	for d, err := range p.log.Dropped(ctx, m) {
		if err != nil {
			return err
		}
		set.add(d.Key)
	}
	return nil
}

// keySet holds 8 bytes for each of many keys. Of one that is not in it, it may say
// that it is, about once in 2⁶⁴ divided by their number: then something stays that
// could go.
type keySet struct {
	seed   maphash.Seed
	hashes []uint64
}

func (k *keySet) add(key string) { k.hashes = append(k.hashes, maphash.String(k.seed, key)) }

// lazy makes a set when it is first needed.
func lazy(fill func(context.Context, *keySet) error) func(context.Context) (*keySet, error) {
	var set *keySet
	return func(ctx context.Context) (*keySet, error) {
		if set != nil {
			return set, nil
		}
		k := &keySet{seed: maphash.MakeSeed()}
		if err := fill(ctx, k); err != nil {
			return nil, err
		}
		slices.Sort(k.hashes)
		set = k
		return set, nil
	}
}

func absent(ctx context.Context, set func(context.Context) (*keySet, error), key string) (bool, error) {
	k, err := set(ctx)
	if err != nil {
		return false, err
	}
	_, found := slices.BinarySearch(k.hashes, maphash.String(k.seed, key))
	return !found, nil
}

// each calls f for each object that a rule dooms, until f returns false.
func (p *pass) each(ctx context.Context, r rule, f func(store.Info) bool) error {
	n := int64(0)
	for info, err := range store.ListAll(ctx, p.st, r.prefix, nil, p.opts.Settle) {
		if err != nil {
			return err
		}
		if n++; n%1000 == 1 {
			if err := p.pace(ctx, 1, 0); err != nil {
				return err
			}
		}
		if !strings.HasPrefix(info.Key, r.prefix) {
			continue
		}
		doomed, err := r.doomed(ctx, info)
		if err != nil {
			return err
		}
		if doomed && !f(info) {
			return nil
		}
	}
	return nil
}

// sweep deletes what a rule dooms.
func (p *pass) sweep(ctx context.Context, r rule) error {
	for {
		var keys []string
		err := p.each(ctx, r, func(info store.Info) bool {
			keys = append(keys, info.Key)
			return len(keys) < sweepBatch
		})
		if err != nil {
			return err
		}
		last := len(keys) < sweepBatch
		// A listing may repeat itself. Oldest first: of the manifests, each is there
		// for as long as any that it replaced.
		slices.Sort(keys)
		if err := p.delete(ctx, r.kind, slices.Compact(keys)); err != nil || last {
			return err
		}
	}
}

func (p *pass) delete(ctx context.Context, kind string, keys []string) error {
	for batch := range slices.Chunk(keys, deleteAt) {
		if err := p.pace(ctx, 1, 0); err != nil {
			return err
		}
		if err := store.DeleteAll(ctx, p.st, batch, p.opts.Settle); err != nil {
			return err
		}
		p.report.pruned(kind, batch)
		p.progress()
	}
	return nil
}

// uploads are what uploads that were broken off have left, by the rules of orphans and
// of tmp: they were never complete, so nothing names them.
func (s *survey) uploads() []rule {
	own := func(parse func(string) (layout.Role, fence.Epoch, bool)) func(context.Context, store.Info) (bool, error) {
		return func(_ context.Context, info store.Info) (bool, error) { return s.fencedUpload(info.Key, parse), nil }
	}
	return []rule{
		{"upload", segmentPrefix, own(layout.ParseSegmentKey)},
		{"upload", listPrefix, own(layout.ParseListKey)},
		{"upload", filePrefix, func(_ context.Context, info store.Info) (bool, error) { return s.sealedFile(info.Key), nil }},
		{"upload", tmp.prefix, tmp.doomed},
	}
}

// abortUploads ends them. A store that does not let us costs its owner some
// storage, and nothing else.
func (p *pass) abortUploads(ctx context.Context, s *survey) error {
	st, ok := p.st.(store.UploadAborter)
	if !ok {
		return nil
	}
	for _, r := range s.uploads() {
		if err := p.pace(ctx, 1, 0); err != nil {
			return err
		}
		err := store.Retry(ctx, p.opts.Settle, func(ctx context.Context) error {
			n, err := st.AbortUploads(ctx, r.prefix, func(info store.Info) bool {
				doomed, err := r.doomed(ctx, info)
				return doomed && err == nil
			})
			p.report.count(r.kind, n)
			return err
		})
		if store.Permanent(err) && !errors.Is(err, store.ErrNoBucket) {
			p.opts.Logger.Warn("uploads that were broken off are not looked for", zap.Error(err))
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
