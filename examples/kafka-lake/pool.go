package main

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// memory is the pool of all partitions of the process.
var memory pool

// bytesSlab is how many bytes there is room for; a batch has at most as many by default.
const bytesSlab = 1 << 20

// pool lets a Kafka client use the memory of messages again that were written to a file. It gets
// the memory back when all messages of a batch are recycled.
type pool struct {
	// records has slabs by the logarithm of their capacity: batches are of some hundred messages with
	// one producer, and of ten thousand with another.
	records [32]sync.Pool
	bytes   sync.Pool
}

var (
	_ kgo.PoolRecords         = (*pool)(nil)
	_ kgo.PoolDecompressBytes = (*pool)(nil)
)

// GetRecords implements [kgo.PoolRecords].
func (p *pool) GetRecords(n int) []kgo.Record {
	class := bits.Len(uint(max(n, 1) - 1))
	if class >= len(p.records) {
		return make([]kgo.Record, n)
	}
	if s, ok := p.records[class].Get().(*[]kgo.Record); ok {
		return *s
	}
	return make([]kgo.Record, n, 1<<class)
}

// PutRecords implements [kgo.PoolRecords].
func (p *pool) PutRecords(s []kgo.Record) {
	class := bits.Len(uint(cap(s))) - 1
	if class >= 0 && class < len(p.records) && cap(s) == 1<<class {
		p.records[class].Put(&s)
	}
}

// GetDecompressBytes implements [kgo.PoolDecompressBytes]. The client makes room itself where there is
// too little.
func (p *pool) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	if s, ok := p.bytes.Get().(*[]byte); ok {
		return *s
	}
	return make([]byte, 0, bytesSlab)
}

// PutDecompressBytes implements [kgo.PoolDecompressBytes].
func (p *pool) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }
