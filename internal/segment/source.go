package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/store"
)

// Source says where segments are, and how to read them.
type Source struct {
	Store  store.Store
	Log    fence.ID
	Limits fence.Limits
	Settle *store.SettleOptions
	// Budget in bytes is how much [Source.Read] fetches ahead, and again how much of
	// it is kept decompressed; [DefaultBudget] if 0. One large block may exceed it.
	Budget int64
}

// Ref names a segment, as a manifest does.
type Ref struct {
	Key         string
	First, End  uint64
	Size, Index int64
}

// Index reads the index of a segment. A missing segment is store.ErrNotFound.
func (s *Source) Index(ctx context.Context, ref Ref) ([]Block, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	tail, err := s.fetch(ctx, ref, ref.Size-ref.Index, ref.Index)
	if err != nil {
		return nil, err
	}
	return s.index(tail, ref)
}

// check refuses an index whose size is impossible.
func (r Ref) check() error {
	if r.Index <= 0 || r.Index > maxIndex || r.Index > r.Size {
		return fmt.Errorf("%w: %s: an index of %d bytes in %d", fence.ErrCorrupt, r.Key, r.Index, r.Size)
	}
	return nil
}

// fetch reads one part of a segment, and compares the segment's size with the
// manifest's.
func (s *Source) fetch(ctx context.Context, ref Ref, at, length int64) ([]byte, error) {
	b, info, err := store.Read(ctx, s.Store, ref.Key, &store.ReadOptions{Offset: at, Length: length, Settle: s.Settle})
	switch {
	case errors.Is(err, store.ErrRange):
		return nil, fmt.Errorf("%w: %s does not have the %d bytes that the manifest says: %w", fence.ErrCorrupt, ref.Key, ref.Size, err)
	case err != nil:
		return nil, err
	case info.Size != ref.Size:
		return nil, fmt.Errorf("%w: %s has %d bytes, the manifest says %d", fence.ErrCorrupt, ref.Key, info.Size, ref.Size)
	}
	return b, nil
}

// index decodes the end of a segment.
func (s *Source) index(tail []byte, ref Ref) ([]Block, error) {
	blocks, err := DecodeIndex(tail, ref.Size, s.Log, ref.First, ref.End)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref.Key, err)
	}
	for i, b := range blocks {
		if limit := frame.MaxFrame(blockLimits(s.Limits)); b.Len > limit {
			return nil, fmt.Errorf("%w: %s: block %d has %d bytes; the log allows %d", fence.ErrCorrupt, ref.Key, i, b.Len, limit)
		}
	}
	return blocks, nil
}
