package main

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger has what was produced: for each partition the offset of each message that Kafka has acknowledged,
// with a hash of its key and value.
type ledger struct {
	mu      sync.Mutex
	by      []map[int64]uint64
	n       int
	faults  []error
	settled sync.WaitGroup
}

func newLedger(partitions int) *ledger {
	l := &ledger{by: make([]map[int64]uint64, partitions)}
	for i := range l.by {
		l.by[i] = map[int64]uint64{}
	}
	return l
}

var seed = maphash.MakeSeed()

func hash(key, value []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.Write(key) // it never fails
	_ = h.WriteByte(0)
	_, _ = h.Write(value)
	return h.Sum64()
}

// add is told the outcome of each message.
func (l *ledger) add(m *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.settled.Done()
	if err != nil {
		l.faults = append(l.faults, err)
		return
	}
	l.by[m.Partition][m.Offset] = hash(m.Key, m.Value)
	l.n++
}

// count is how many messages were acknowledged. The error is the first of a message that was not.
func (l *ledger) count() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) > 0 {
		return l.n, fmt.Errorf("kafka-lake: producing: %w", l.faults[0])
	}
	return l.n, nil
}

// verdict is what a comparison has found. All numbers but the first two must be 0.
type verdict struct {
	Produced, Read int
	// Lost: produced and not read. Doubled: read once more. Strange: read and never produced. Changed:
	// read with another key or value. Gaps: offsets that are missing between two that were read.
	Lost, Doubled, Strange, Changed, Gaps int
	examples                              []string
}

func (v *verdict) example(format string, args ...any) {
	if len(v.examples) < 5 {
		v.examples = append(v.examples, fmt.Sprintf(format, args...))
	}
}

// err says what is wrong, or is nil.
func (v *verdict) err() error {
	if v.Lost+v.Doubled+v.Strange+v.Changed+v.Gaps == 0 && v.Produced == v.Read {
		return nil
	}
	return fmt.Errorf("broken promise: of %d messages produced, the table has %d; %d are lost, %d doubled, %d were never produced, %d changed; %d offsets are missing: %s",
		v.Produced, v.Read, v.Lost, v.Doubled, v.Strange, v.Changed, v.Gaps, strings.Join(v.examples, "; "))
}

// compare compares what was produced with what each calls its function for. No message may be produced
// meanwhile.
func (l *ledger) compare(each func(func(entry))) verdict {
	v := verdict{Produced: l.n}
	seen := make([]map[int64]bool, len(l.by))
	for p := range seen {
		seen[p] = map[int64]bool{}
	}
	each(func(r entry) {
		v.Read++
		if r.partition < 0 || int(r.partition) >= len(l.by) {
			v.Strange++
			v.example("partition %d was never produced", r.partition)
			return
		}
		want, ok := l.by[r.partition][r.offset]
		switch {
		case !ok:
			v.Strange++
			v.example("partition %d offset %d was never produced", r.partition, r.offset)
		case seen[r.partition][r.offset]:
			v.Doubled++
			v.example("partition %d offset %d is there twice", r.partition, r.offset)
		case want != r.hash:
			v.Changed++
			v.example("partition %d offset %d has another key or value", r.partition, r.offset)
		}
		seen[r.partition][r.offset] = true
	})
	for p, want := range l.by {
		for offset := range want {
			if !seen[p][offset] {
				v.Lost++
				v.example("partition %d offset %d is lost", p, offset)
			}
		}
		offsets := make([]int64, 0, len(seen[p]))
		for offset := range seen[p] {
			offsets = append(offsets, offset)
		}
		if len(offsets) > 0 {
			v.Gaps += int(slices.Max(offsets)-slices.Min(offsets)) + 1 - len(offsets)
		}
	}
	return v
}
