//go:build unix

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report is what the workers have told.
type report struct {
	owned    [][]ownership     // by partition
	uploaded map[string]string // by file: who has uploaded it
	failed   []string          // what workers could not do, and tried again
	moments  map[string]event  // by worker and what: how it died, froze and was answered
	ended    map[string]bool   // workers whose processes have ended
}

// ownership is an opening of a partition by a worker.
type ownership struct {
	worker string
	token  uint64
	closed bool
}

func newReport(partitions int) *report {
	return &report{owned: make([][]ownership, partitions), uploaded: map[string]string{}, moments: map[string]event{}, ended: map[string]bool{}}
}

func (r *report) add(e event) {
	if e.Partition < 0 || e.Partition >= len(r.owned) {
		return
	}
	switch e.What {
	case "opens":
		r.owned[e.Partition] = append(r.owned[e.Partition], ownership{worker: e.Worker, token: e.Token})
	case "closes":
		for i, o := range r.owned[e.Partition] {
			if o.token == e.Token {
				r.owned[e.Partition][i].closed = true
			}
		}
	case "uploaded":
		r.uploaded[e.File] = e.Worker
	case "dies", "freezes", "answered":
		r.moments[e.Worker+" "+e.What] = e
	}
	if e.Text != "" && e.What != "answered" {
		r.failed = append(r.failed, fmt.Sprintf("%s, partition %d, %s: %s", e.Worker, e.Partition, e.What, e.Text))
	}
}

// shares is how many partitions each worker holds now.
func (r *report) shares() map[string]int {
	shares := map[string]int{}
	for _, all := range r.owned {
		if len(all) == 0 {
			continue
		}
		last := slices.MaxFunc(all, func(a, b ownership) int { return cmp.Compare(a.token, b.token) })
		if !last.closed {
			shares[last.worker]++
		}
	}
	return shares
}

func (r *report) text() string {
	shares := r.shares()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		all = append(all, fmt.Sprintf("%s %d", name, shares[name]))
	}
	return strings.Join(all, ", ")
}

// openings is how often partitions were opened.
func (r *report) openings() (n int) {
	for _, all := range r.owned {
		n += len(all)
	}
	return n
}
