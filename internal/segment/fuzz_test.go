package segment

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/test"
)

func known(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat) || errors.Is(err, fence.ErrLimit)
}

// An index that is accepted covers its segment without a gap, and finds every
// record. Fuzzers do not guess checksums, so each input is also tried with a right
// one.
func FuzzDecodeIndex(f *testing.F) {
	b, sum := sample(f)
	f.Add(b[sum.Size-sum.Index:], sum.Size, sum.First, sum.End)
	f.Fuzz(func(t *testing.T, tail []byte, size int64, first, end uint64) {
		tails := [][]byte{tail}
		if len(tail) >= trailerSize {
			d := bytes.Clone(tail)
			copy(d[len(d)-trailerSize:], testLog[:])
			copy(d[len(d)-8:], magic)
			tails = append(tails, redo(d))
		}
		for _, tail := range tails {
			var blocks []Block
			var err error
			test.Affords(t, len(tail), 16, 64<<10, func() { blocks, err = DecodeIndex(tail, size, testLog, first, end) })
			if err != nil {
				if !known(err) || blocks != nil {
					t.Fatalf("%v, %v", blocks, err)
				}
				continue
			}
			var at int64
			for i, b := range blocks {
				if b.At != at || b.Len < frame.HeaderSize || Find(blocks, b.First) != i || b.First < first || b.First >= end {
					t.Fatalf("block %d is %+v", i, b)
				}
				at += b.Len
			}
			if at+int64(len(tail)) != size || Find(blocks, end-1) != len(blocks)-1 {
				t.Fatalf("the blocks end at %d of %d", at, size)
			}
		}
	})
}

// A block that is accepted holds exactly what the index says.
func FuzzDecodeBlock(f *testing.F) {
	b, sum := sample(f)
	blocks := indexOf(f, b, sum)
	for i, blk := range blocks {
		if blk.Len < 10_000 {
			f.Add(b[blk.At:blk.At+blk.Len], i, blk.First, sum.End)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, i int, first, end uint64) {
		blocks := []Block{{First: first}, {First: first + 2}, {First: first + 3}}
		i = int(uint(i) % 3)
		var fr *frame.Frame
		var err error
		test.Affords(t, len(b), 8, 1<<20, func() {
			fr, err = DecodeBlock(b, blocks, i, testLog, end, fence.Limits{Object: 1 << 16, Record: 1 << 12})
		})
		if err != nil {
			if !known(err) || fr != nil {
				t.Fatalf("%v, %v", fr, err)
			}
			return
		}
		want := []uint64{2, 1, end - first - 3}[i]
		if fr.Offset != blocks[i].First || uint64(fr.Header.Records) != want {
			t.Fatalf("block %d of [%d, %d) holds %d records from %d", i, first, end, fr.Header.Records, fr.Offset)
		}
	})
}
