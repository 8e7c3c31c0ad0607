package faultstore

import (
	"maps"
	"slices"
	"strings"
)

// Counts are numbers of requests by kind and by folder, which is the key up to its last
// slash. Every request counts, whatever its outcome; late copies do not. A Delete counts
// once, under its first key.
type Counts map[Kind]map[string]int

func (c Counts) add(op Op) {
	if c[op.Kind] == nil {
		c[op.Kind] = map[string]int{}
	}
	c[op.Kind][op.Key[:strings.LastIndexByte(op.Key, '/')+1]]++
}

// Of returns how many requests of a kind were for keys in folders that begin with prefix,
// such as "data/". An empty kind or prefix means all.
func (c Counts) Of(kind Kind, prefix string) int {
	n := 0
	for k, folders := range c {
		if kind != "" && kind != k {
			continue
		}
		for folder, times := range folders {
			if strings.HasPrefix(folder, prefix) {
				n += times
			}
		}
	}
	return n
}

// Counts returns the numbers for all clients together, since the beginning or the last
// ResetCounts.
func (sh *shared) Counts() Counts {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := Counts{}
	for kind, folders := range sh.counts {
		c[kind] = maps.Clone(folders)
	}
	return c
}

// ResetCounts sets all numbers to 0.
func (sh *shared) ResetCounts() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.counts = Counts{}
}

// Entry of the log.
type Entry struct {
	Op    Op
	Fault Fault
	// Landed marks the landing of a late copy. Err is then the store's answer, which no
	// caller got.
	Landed bool
	// Done reports that the request has ended, with Err.
	Done bool
	Err  error
}

// Log returns the latest entries, oldest first: at most Options.LogSize.
func (sh *shared) Log() []Entry {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return slices.Clone(sh.log.entries[max(0, len(sh.log.entries)-sh.log.max):])
}

// latest holds the latest max entries, and up to as many older ones.
type latest struct {
	max     int
	entries []Entry
}

func (l *latest) add(e Entry) {
	if l.entries = append(l.entries, e); len(l.entries) == 2*l.max {
		l.entries = slices.Delete(l.entries, 0, l.max)
	}
}

// finish records the end of request n, unless its entry was dropped.
func (l *latest) finish(n int, err error) {
	for i, e := range slices.Backward(l.entries) {
		if e.Op.N == n && !e.Landed {
			l.entries[i].Done, l.entries[i].Err = true, err
			return
		}
	}
}
