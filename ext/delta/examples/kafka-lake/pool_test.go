//go:build unix

package main

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// After a pause Kafka returns thousands of batches at once. The messages need little more memory than they
// are long, also if each batch has one message.
func TestMemoryOfSmallBatches(t *testing.T) {
	const batches, size = 2000, 200
	w := newWorld(t)
	value := bytes.Repeat([]byte{'x'}, size) // so it is compressed
	for range batches {
		if err := w.client.ProduceSync(t.Context(), &kgo.Record{Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	o := w.own("a", 1, time.Hour)
	from, at, err := o.lake.seek(t.Context(), o.w, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	before := heap()
	var all []*kgo.Record
	for len(all) < batches {
		messages, err := o.lake.poll(t.Context(), from, at.Topic, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, messages...)
	}
	// With room for the largest batch it is 1 MiB a message.
	if grown := heap() - before; grown > batches*(size+1000)*4 {
		t.Errorf("%d messages of %d bytes take %d KiB", batches, size, grown>>10)
	}
	runtime.KeepAlive(all)
}

// heap is how many bytes live.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
