package main

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
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
	return make([]kgo.Record, n)
}

// PutRecords implements [kgo.PoolRecords].
func (p *pool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

// GetDecompressBytes implements [kgo.PoolDecompressBytes]. The client makes room itself where there is
// too little.
func (p *pool) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	if s, ok := p.bytes.Get().(*[]byte); ok {
		return *s
	}
	return nil
}

// PutDecompressBytes implements [kgo.PoolDecompressBytes].
func (p *pool) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }
