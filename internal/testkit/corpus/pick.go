package main

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// feature is a block of statements and about how often it runs.
type feature struct {
	block string
	times int
}

type features map[feature]bool

func (f features) add(o features) {
	for k := range o {
		f[k] = true
	}
}

// and returns what is in both; nil stands for everything.
func (f features) and(o features) features {
	if f == nil {
		return o
	}
	both := features{}
	for k := range f {
		if o[k] {
			both[k] = true
		}
	}
	return both
}

// without counts what is in f and not in o.
func (f features) without(o features) (n int) {
	for k := range f {
		if !o[k] {
			n++
		}
	}
	return n
}

// parse reads a coverage profile: each line has a block, its number of statements and a
// count.
func parse(profile string) (features, error) {
	f := features{}
	for line := range strings.Lines(profile) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue // the first line, which names the mode
		}
		n, err := strconv.ParseUint(words[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
		if n > 0 {
			f[feature{words[0], bits.Len64(n - 1)}] = true
		}
	}
	return f, nil
}

// entry is one entry of a corpus.
type entry struct {
	name string
	size int64
	runs features
}

// pick returns up to n entries that add to have, and adds their features to it.
func pick(have features, some []entry, n int) (chosen []entry) {
	some = slices.Clone(some)
	for len(chosen) < n && len(some) > 0 {
		adds := map[string]int{}
		for _, e := range some {
			adds[e.name] = e.runs.without(have)
		}
		best := slices.MinFunc(some, func(a, b entry) int {
			return cmp.Or(cmp.Compare(adds[b.name], adds[a.name]), cmp.Compare(a.size, b.size), strings.Compare(a.name, b.name))
		})
		if adds[best.name] == 0 {
			break
		}
		have.add(best.runs)
		chosen = append(chosen, best)
		some = slices.DeleteFunc(some, func(e entry) bool { return adds[e.name] == 0 || e.name == best.name })
	}
	return chosen
}
