package compactor

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// orphanRules delete what was uploaded and never named, by a manifest or by an edit, and
// never will be.
func (p *pass) orphanRules(s *survey) []rule {
	// Segments and lists: a later epoch than their compactor's is in m, so it is fenced.
	//
	// guard:orphan-named. A compactor deletes a segment or page of an earlier compactor epoch as an
	// orphan only if the newest manifest does not name it.
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
	// guard:orphan-files. A compactor deletes a file as an orphan only when the file's epoch is sealed
	// and folded.
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
		{p.st, "orphan", layout.SegmentPrefix, own(layout.ParseSegmentKey)},
		{p.st, "orphan", layout.ListPrefix, own(layout.ParseListKey)},
		{p.files, "orphan", layout.FilePrefix, file},
	}
}

// fencedUpload tells whether a compactor or a writer that m has fenced made the key.
func (s *survey) fencedUpload(key string, parse func(string) (layout.Role, fence.Epoch, bool)) bool {
	role, epoch, ok := parse(key)
	if role == layout.Writer {
		return ok && epoch < s.m.Roles[layout.Writer].Epoch
	}
	return ok && epoch < s.epoch
}

// sealedFile tells whether a key is that of a file whose epoch is sealed and folded.
func (s *survey) sealedFile(key string) bool {
	epoch, _, _, ok := layout.ParseFileKey(key)
	return ok && epoch < s.m.Floor.Position.Epoch
}

// named collects the segments and lists that m names, or that were dropped and are not
// deleted yet.
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

// live collects the files of the table, or that were dropped and are not deleted yet.
//
// guard:orphan-live. A file that is live in the table is not an orphan.
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

// dropped collects what was dropped and is not deleted yet.
//
// guard:orphan-dropped. An object that a manifest version has dropped is not deleted as an orphan; the
// prune mark and the pins decide when it is deleted.
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

// uploadRules are for the parts of uploads that were broken off, by the rules of orphans
// and of tmp. Such an upload was never complete, so nothing names it.
func (p *pass) uploadRules(s *survey) []rule {
	own := func(parse func(string) (layout.Role, fence.Epoch, bool)) func(context.Context, store.Info) (bool, error) {
		return func(_ context.Context, info store.Info) (bool, error) { return s.fencedUpload(info.Key, parse), nil }
	}
	rules := []rule{
		{p.st, "upload", layout.SegmentPrefix, own(layout.ParseSegmentKey)},
		{p.st, "upload", layout.ListPrefix, own(layout.ParseListKey)},
		{p.files, "upload", layout.FilePrefix, func(_ context.Context, info store.Info) (bool, error) { return s.sealedFile(info.Key), nil }},
	}
	for _, r := range p.tmpRules() {
		rules = append(rules, rule{r.in, "upload", r.prefix, r.dead})
	}
	return rules
}

// abortUploads aborts them. If the store does not allow that, it costs the owner some
// storage and breaks nothing.
func (p *pass) abortUploads(ctx context.Context, s *survey) error {
	for _, r := range p.uploadRules(s) {
		st, ok := store.As[store.UploadAborter](r.in)
		if !ok {
			continue
		}
		if err := p.pace(ctx, 0); err != nil {
			return err
		}
		err := store.Retry(ctx, p.opts.Settle, func(ctx context.Context) error {
			n, err := st.AbortUploads(ctx, r.prefix, func(info store.Info) bool {
				dead, err := r.dead(ctx, info)
				return dead && err == nil
			})
			p.report.count(r.kind, n)
			return err
		})
		if store.Permanent(err) && !errors.Is(err, store.ErrNoBucket) {
			p.opts.Logger.Warn("uploads that were broken off cannot be aborted; their parts stay in the store", zap.Error(err))
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keySet is a set of many keys, 8 bytes for each. It may contain a key that was never
// added, with a chance of its size / 2⁶⁴: then an orphan stays.
type keySet struct {
	seed   maphash.Seed
	hashes []uint64
}

func (k *keySet) add(key string) { k.hashes = append(k.hashes, maphash.String(k.seed, key)) }

// lazy fills a set when it is first needed.
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
