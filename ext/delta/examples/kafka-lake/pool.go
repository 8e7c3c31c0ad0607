package main

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// memory is the pool of all partitions of the process.
var memory pool

// pool lets a Kafka client use the memory of messages again that were written to a file. It gets
// the memory back when all messages of a batch are recycled.
type pool struct {
	records slabs[kgo.Record]
	bytes   slabs[byte]
}

var (
	_ kgo.PoolRecords         = (*pool)(nil)
	_ kgo.PoolDecompressBytes = (*pool)(nil)
)

// GetRecords implements [kgo.PoolRecords].
func (p *pool) GetRecords(n int) []kgo.Record { return p.records.get(n) }

// PutRecords implements [kgo.PoolRecords].
func (p *pool) PutRecords(s []kgo.Record) { p.records.put(s) }

// expands is how many times as long a batch is expected to be when it is decompressed.
const expands = 4

// GetDecompressBytes implements [kgo.PoolDecompressBytes]. The client makes room itself where there is
// too little. Room for the largest batch would be too much: after a pause, Kafka returns thousands of
// batches at once, and each may have one message only.
func (p *pool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	return p.bytes.get(expands * len(compressed))
}

// PutDecompressBytes implements [kgo.PoolDecompressBytes].
func (p *pool) PutDecompressBytes(s []byte) { p.bytes.put(s) }

// slabs keeps slices to use them again. Slices in s[i] have a capacity of 1<<i or more, and of less
// than 1<<(i+1): batches have a few messages with one producer, and ten thousand with another.
type slabs[T any] [32]sync.Pool

// get returns an empty slice with a capacity of n or more.
func (s *slabs[T]) get(n int) []T {
	class := bits.Len(uint(max(n, 1) - 1))
	if class >= len(s) {
		return make([]T, 0, n)
	}
	if slab, ok := s[class].Get().(*[]T); ok {
		return (*slab)[:0]
	}
	return make([]T, 0, 1<<class)
}

// put takes a slice back.
func (s *slabs[T]) put(slab []T) {
	class := bits.Len(uint(cap(slab))) - 1
	if class >= 0 && class < len(s) {
		s[class].Put(&slab)
	}
}
