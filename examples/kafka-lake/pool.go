package main

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// memory is the pool of all partitions of the process.
var memory pool

// Slabs have round capacities, so that one fits the next batch too, whose size is a little different.
const (
	recordsSlab = 4096    // records
	bytesSlab   = 1 << 20 // bytes; a batch has at most as many by default
)

// pool lets a Kafka client use the memory of messages again that were written to a file. It gets
// the memory back when all messages of a batch are recycled.
type pool struct{ records, bytes sync.Pool }

var (
	_ kgo.PoolRecords         = (*pool)(nil)
	_ kgo.PoolDecompressBytes = (*pool)(nil)
)

// GetRecords implements [kgo.PoolRecords].
func (p *pool) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return *s
	}
	return make([]kgo.Record, n, (n+recordsSlab-1)/recordsSlab*recordsSlab)
}

// PutRecords implements [kgo.PoolRecords].
func (p *pool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

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
