package segment

import (
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// blockLimits are the limits of a block. It may hold more than an object of the chain.
func blockLimits(l fence.Limits) fence.Limits {
	l.Object = max(l.Object, BlockSize)
	return l
}

// DecodeBlock reads block i of a segment that ends before the record end.
func DecodeBlock(b []byte, blocks []Block, i int, log fence.ID, end uint64, limits fence.Limits) (*frame.Frame, error) {
	f, err := frame.Decode(b, blockLimits(limits))
	if err != nil {
		return nil, err
	}
	if err := checkBlock(&f.Header, blocks, i, log, end); err != nil {
		return nil, err
	}
	return f, nil
}

// decodeWhole is DecodeBlock for a block that can stay as it is, and nil for others.
func decodeWhole(b []byte, blocks []Block, i int, log fence.ID, end uint64, limits fence.Limits) (*frame.Stored, error) {
	h, err := frame.DecodeHeader(b)
	if err != nil || !Whole(&h) {
		return nil, err
	}
	s, err := frame.DecodeStored(b, blockLimits(limits))
	if err != nil {
		return nil, err
	}
	return s, checkBlock(&s.Header, blocks, i, log, end)
}

// checkBlock compares a block with the index.
func checkBlock(h *frame.Header, blocks []Block, i int, log fence.ID, end uint64) error {
	if i+1 < len(blocks) {
		end = blocks[i+1].First
	}
	if h.HasCursor {
		return fmt.Errorf("%w: block %d has a cursor", fence.ErrCorrupt, i)
	}
	if h.Kind != frame.Data || h.Log != log || h.Offset != blocks[i].First || h.Offset+uint64(h.Records) != end {
		return fmt.Errorf("%w: block %d holds [%d, %d) of log %s, should be [%d, %d)", fence.ErrCorrupt, i, h.Offset, h.Offset+uint64(h.Records), h.Log, blocks[i].First, end)
	}
	return nil
}
