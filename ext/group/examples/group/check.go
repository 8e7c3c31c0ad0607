//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// report is what the workers have told.
type report struct {
	holds map[string]int64 // by worker: until when it holds its partitions without a heartbeat
	owned [][]*ownership   // by partition
	acked [][]string       // by partition: the acknowledged records
}

// ownership is a time in which a worker believed that it owned a partition.
type ownership struct {
	worker    string
	token     uint64
	from, end int64 // end is 0 while it has not said that it closes
	until     int64 // its deadline, by the last heartbeat
}

func newReport() report {
	return report{holds: map[string]int64{}, owned: make([][]*ownership, partitions), acked: make([][]string, partitions)}
}

func (r *report) add(e event) {
	if e.Partition < 0 || e.Partition >= partitions {
		return
	}
	switch e.What {
	case "holds":
		r.holds[e.Worker] = e.Until
		for _, all := range r.owned {
			for _, o := range all {
				if o.worker == e.Worker && o.end == 0 {
					o.until = e.Until
				}
			}
		}
	case "opens":
		r.owned[e.Partition] = append(r.owned[e.Partition], &ownership{worker: e.Worker, token: e.Token, from: e.At, until: r.holds[e.Worker]})
	case "closes":
		for _, o := range r.owned[e.Partition] {
			if o.worker == e.Worker && o.token == e.Token {
				o.end = e.At
			}
		}
	case "appended":
		r.acked[e.Partition] = append(r.acked[e.Partition], e.Value)
	}
}

// over is when the belief ended: when the worker closed the partition, or at its own deadline.
func (o *ownership) over() int64 {
	switch {
	case o.end == 0:
		return o.until
	case o.until == 0:
		return o.end
	}
	return min(o.end, o.until)
}

// shares is how many partitions each worker holds now.
func (r *report) shares() map[string]int {
	shares := map[string]int{}
	for _, all := range r.owned {
		if len(all) == 0 {
			continue
		}
		last := slices.MaxFunc(all, func(a, b *ownership) int { return cmp.Compare(a.token, b.token) })
		if last.end == 0 {
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

// check returns the first promise that was broken.
func (r *report) check(ctx context.Context, st store.Store, s *story) error {
	var gaps []int64
	if err := r.ownerships(&gaps); err != nil {
		return err
	}
	if len(gaps) == 0 {
		return errors.New("no partition has moved")
	}
	opens, records := 0, 0
	for p, all := range r.owned {
		opens += len(all)
		n, err := r.history(ctx, st, p)
		if err != nil {
			return err
		}
		records += n
	}
	slices.Sort(gaps)
	s.say("no two workers held a partition at once, by their own belief, in %d ownerships; tokens rise", opens)
	s.say("each of %d logs is one history: each of %d acknowledged records is there, once, in order", partitions, records)
	s.say("nobody held a partition for: median %v, 99 of 100 below %v, longest %v", round(gaps[len(gaps)/2]), round(gaps[len(gaps)*99/100]), round(gaps[len(gaps)-1]))
	return nil
}

// ownerships returns the first promise that was broken about who held what, and collects the gaps.
func (r *report) ownerships(gaps *[]int64) error {
	for p, all := range r.owned {
		slices.SortFunc(all, func(a, b *ownership) int { return cmp.Compare(a.from, b.from) })
		for i, o := range all[min(1, len(all)):] {
			before := all[i]
			if o.token <= before.token {
				return fmt.Errorf("partition %d: %s opened it with token %d after %s with %d", p, o.worker, o.token, before.worker, before.token)
			}
			if o.from < before.over() {
				return fmt.Errorf("partition %d: %s opened it %v before %s's time was over", p, o.worker, round(before.over()-o.from), before.worker)
			}
			*gaps = append(*gaps, o.from-before.over())
		}
	}
	return nil
}

func round(d int64) time.Duration { return time.Duration(d).Round(time.Millisecond) }

// history compares the log of a partition with what was acknowledged.
func (r *report) history(ctx context.Context, st store.Store, p int) (acked int, err error) {
	part, err := group.PartitionStore(st, p)
	if err != nil {
		return 0, err
	}
	log, err := reader.Open(ctx, part, nil)
	if err != nil {
		return 0, fmt.Errorf("partition %d: %w", p, err)
	}
	at := map[string]uint64{}
	for rec, err := range log.Read(ctx, 0) {
		if err != nil {
			return 0, fmt.Errorf("partition %d: %w", p, err)
		}
		if _, twice := at[string(rec.Value)]; twice {
			return 0, fmt.Errorf("partition %d holds %q twice", p, rec.Value)
		}
		at[string(rec.Value)] = rec.Offset
	}
	last := map[string]uint64{} // by worker and token
	for _, value := range r.acked[p] {
		offset, ok := at[value]
		who := value[:strings.LastIndexByte(value, ' ')]
		if before, more := last[who]; !ok || more && offset <= before {
			return 0, fmt.Errorf("partition %d: the acknowledged record %q is missing or out of order", p, value)
		}
		last[who] = offset
	}
	return len(r.acked[p]), nil
}
