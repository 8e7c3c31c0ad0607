package faultstore

import (
	"maps"
	"strings"
)

// Counts are numbers of requests by kind and by folder: the key up to its last
// slash. Requests count when they are made, whatever becomes of them; late
// copies do not count. A Delete counts once, under its first key.
type Counts map[Kind]map[string]int

func (c Counts) add(op Op) {
	if c[op.Kind] == nil {
		c[op.Kind] = map[string]int{}
	}
	c[op.Kind][op.Key[:strings.LastIndexByte(op.Key, '/')+1]]++
}

// Of returns how many requests of a kind had a key in a folder that begins with
// prefix, such as "data/"; "" stands for all kinds, or all folders.
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

// Counts returns the numbers since the beginning or the last ResetCounts, of
// all clients together.
func (sh *shared) Counts() Counts {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := Counts{}
	for kind, folders := range sh.counts {
		c[kind] = maps.Clone(folders)
	}
	return c
}

// ResetCounts begins to count anew.
func (sh *shared) ResetCounts() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.counts = Counts{}
}

// Entry of the log.
type Entry struct {
	Op    Op
	Fault Fault
	// Landed marks the landing of a late copy. Err is then what the store
	// answered, which nobody heard.
	Landed bool
	// Done tells that the request has ended, with Err.
	Done bool
	Err  error
}

// Log returns the latest entries, oldest first: at most Options.LogSize.
func (sh *shared) Log() []Entry {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.log.all()
}

// ring holds the latest max entries.
type ring struct {
	max     int
	next    int // where the next entry goes once the ring is full
	entries []Entry
}

func (r *ring) add(e Entry) {
	if len(r.entries) < r.max {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.next] = e
	r.next = (r.next + 1) % r.max
}

// finish notes the end of request n, unless it has left the ring.
func (r *ring) finish(n int, err error) {
	for i := range r.entries {
		// From the newest back: that is where it is.
		e := &r.entries[(r.next+len(r.entries)-1-i)%len(r.entries)]
		if e.Op.N == n && !e.Landed {
			e.Done, e.Err = true, err
			return
		}
	}
}

func (r *ring) all() []Entry {
	all := make([]Entry, 0, len(r.entries))
	all = append(all, r.entries[r.next:]...)
	return append(all, r.entries[:r.next]...)
}
