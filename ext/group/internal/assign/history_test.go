package assign

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
)

// view is what the rules are checked against, computed by other means than the planner's.
type view struct {
	from, to *Assignment // to is from if there was nothing to do
	news     *News
	weights  map[fence.ID]uint64 // of the members that may receive partitions
	expired  map[fence.ID]bool
	granted  map[int]Request // by partition: the requests that count
	few      bool            // so few partitions move that they may share a tenure with others
}

func viewOf(from *Assignment, news *News, to *Assignment) *view {
	v := &view{from: from, to: to, news: news, weights: map[fence.ID]uint64{}, expired: map[fence.ID]bool{}, granted: map[int]Request{}}
	state, leaving := map[fence.ID]State{}, map[fence.ID]bool{}
	for _, m := range from.Members() {
		v.weights[m.Name], leaving[m.Name] = m.Weight, m.Leaving
	}
	for _, m := range news.Members {
		v.weights[m.Name], state[m.Name] = m.Weight, m.State
		v.expired[m.Name] = m.State == Expired
	}
	maps.DeleteFunc(v.weights, func(n fence.ID, w uint64) bool { return w == 0 || state[n] != Live || leaving[n] })
	for _, r := range news.Requests {
		_, twice := v.granted[r.Partition]
		if r.Partition < 0 || r.Partition >= from.Partitions() || r.Tenure == 0 || from.Tenure(r.Partition) != r.Tenure || twice {
			continue
		}
		able := r.Fresh && v.weights[owner(from, r.Partition)] > 0
		for n := range v.weights {
			able = able || !r.Fresh && n != owner(from, r.Partition) && !slices.Contains(r.Avoid, n)
		}
		if able {
			v.granted[r.Partition] = r
		}
	}
	moved := 0
	for p := range to.Partitions() {
		_, granted := v.granted[p]
		if granted || p >= from.Partitions() && to.Owner(p) != Nobody || p < from.Partitions() && owner(from, p) != owner(to, p) {
			moved++
		}
	}
	v.few = moved*fewMoves < to.Partitions()
	return v
}

// faults returns how an assignment breaks the rules.
func (v *view) faults() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	want := max(v.from.Partitions(), v.news.Partitions)
	if v.to.Partitions() != want {
		fault("%d partitions, want %d", v.to.Partitions(), want)
		return faults
	}
	if v.to != v.from && (v.to.Number() != v.from.Number()+1 || v.to.Maker() != v.news.Organiser || v.to.Group() != v.from.Group() || v.to.Base() != v.from.Base()) {
		fault("assignment %d by %s follows %d", v.to.Number(), v.to.Maker(), v.from.Number())
	}
	for p := range v.to.Partitions() {
		v.partition(p, fault)
	}
	v.listed(fault)
	v.fair(fault)
	v.sticky(fault)
	return faults
}

// partition checks owner, tenure and pending entries of one partition.
func (v *view) partition(p int, fault func(string, ...any)) {
	before, after, tenure, entries := fence.ID{}, owner(v.to, p), uint64(0), map[fence.ID]uint64{}
	if p < v.from.Partitions() {
		before, tenure = owner(v.from, p), v.from.Tenure(p)
		for n, number := range pending(v.from, p) {
			i, _ := v.from.Index(n)
			if v.to == v.from || !v.expired[n] && !v.news.Cleared(p, Entry{Member: i, Number: number}) {
				entries[n] = number
			}
		}
	}
	r, granted := v.granted[p]
	moved := before != after || granted
	none := fence.ID{}
	switch {
	case after != none && v.weights[after] == 0:
		fault("partition %d belongs to %s, who may not receive it", p, after)
	case after == none && len(v.weights) > 0:
		fault("partition %d belongs to nobody", p)
	case granted && r.Fresh && before != after:
		fault("partition %d should have a fresh tenure, and moved", p)
	case granted && !r.Fresh && (before == after || slices.Contains(r.Avoid, after)):
		fault("partition %d was given up by %s, and went to %s", p, before, after)
	}
	switch got := v.to.Tenure(p); {
	case after == none:
		if got != 0 {
			fault("partition %d of nobody has tenure %d", p, got)
		}
	case moved && v.few && before != none:
		if got <= tenure || got > v.to.Number() {
			fault("partition %d has tenure %d after %d in assignment %d", p, got, tenure, v.to.Number())
		}
	case moved:
		if got != v.to.Number() {
			fault("partition %d has tenure %d, want %d", p, got, v.to.Number())
		}
	case got != tenure:
		fault("partition %d has tenure %d, want %d", p, got, tenure)
	}
	if moved && before != none && !v.expired[before] {
		entries[before] = v.to.Number()
	}
	if got := pending(v.to, p); !maps.Equal(got, entries) {
		fault("partition %d has entries %v, want %v", p, got, entries)
	}
	if !slices.IsSortedFunc(v.to.Pending(p), func(a, b Entry) int { return a.Member - b.Member }) {
		fault("partition %d has entries %v, which are not in order", p, v.to.Pending(p))
	}
}

// listed checks the list of members.
func (v *view) listed(fault func(string, ...any)) {
	if v.to == v.from {
		return
	}
	named, listed := map[fence.ID]bool{}, map[fence.ID]bool{}
	for p := range v.to.Partitions() {
		named[owner(v.to, p)] = true
		for n := range pending(v.to, p) {
			named[n] = true
		}
	}
	last := -1
	for _, m := range v.to.Members() {
		if m.Weight > 0 && !m.Leaving != (v.weights[m.Name] > 0) {
			fault("%+v is listed; its weight was %d", m, v.weights[m.Name])
		}
		if listed[m.Name] || !named[m.Name] && (m.Leaving || v.expired[m.Name]) {
			fault("%+v is listed", m)
		}
		listed[m.Name] = true
		// The order of the listed, then that of the news.
		place := slices.IndexFunc(v.from.Members(), func(x Member) bool { return x.Name == m.Name })
		if place < 0 {
			place = len(v.from.Members()) + slices.IndexFunc(v.news.Members, func(x MemberNews) bool { return x.Name == m.Name })
		}
		if place <= last {
			fault("%+v is listed out of order", m)
		}
		last = place
	}
	for n, w := range v.weights {
		if !listed[n] {
			fault("%s of weight %d is not listed", n, w)
		}
	}
}

// limited reports whether fairness may have yielded.
func (v *view) limited() bool {
	for p := range v.from.Partitions() {
		if len(v.from.Pending(p)) >= MaxWaits {
			return true
		}
	}
	return len(v.granted) > 0
}

func (v *view) total() (sum uint64) {
	for _, w := range v.weights {
		sum += w
	}
	return sum
}

// fair checks the shares.
func (v *view) fair(fault func(string, ...any)) {
	if v.limited() {
		return
	}
	got := shares(v.to)
	for n, w := range v.weights {
		// |share - N·w/W| < 1
		share, part, sum := uint64(got[n])*v.total(), uint64(v.to.Partitions())*w, v.total()
		if share+sum <= part || part+sum <= share {
			fault("%s of weight %d of %d owns %d of %d partitions", n, w, sum, got[n], v.to.Partitions())
		}
	}
}

// sticky checks that no partition moved that need not.
func (v *view) sticky(fault func(string, ...any)) {
	if v.limited() {
		return
	}
	if len(v.weights) == 0 {
		return // partition checks that all belong to nobody
	}
	need, had := 0, map[fence.ID]int{}
	for p := range v.from.Partitions() {
		if o := owner(v.from, p); v.weights[o] > 0 {
			had[o]++
		} else {
			need++
		}
	}
	// Everybody may keep what is his part rounded down; and some may keep one more.
	sum, n := v.total(), uint64(v.to.Partitions())
	more, keepers := int(n), 0
	for m, w := range v.weights {
		part := int(n * w / sum)
		more -= part
		if had[m] > part {
			need += had[m] - part
			if n*w%sum > 0 {
				keepers++
			}
		}
	}
	need -= min(more, keepers)
	if got := moves(v.from, v.to); got != need {
		fault("%d partitions moved, and %d need", got, need)
	}
}

// acted is a random history: what members do, what they ask for, and what is acknowledged.
type acted struct {
	*group
	rng *rand.Rand
}

func (h *acted) step() *News {
	weights := []uint64{0, 1, 1, 1, 2, 7, MaxWeight}
	for range h.rng.IntN(3) {
		switch {
		case len(h.members) < 6 && h.rng.IntN(2) == 0:
			h.join(1, weights[h.rng.IntN(len(weights))])
		case len(h.members) > 0:
			i := h.rng.IntN(len(h.members))
			m := &h.members[i]
			if h.rng.IntN(3) == 0 {
				m.Weight = weights[h.rng.IntN(len(weights))]
			} else {
				m.State = max(m.State, State(h.rng.IntN(3)))
			}
		}
	}
	news := h.news()
	news.Members = slices.Clone(h.members)
	switch h.rng.IntN(6) {
	case 0:
		news.Partitions += h.rng.IntN(5)
	case 1:
		news.Partitions -= h.rng.IntN(5) // an old group.json
	}
	if h.rng.IntN(4) == 0 && len(news.Members) > 0 {
		// It knows nothing of one of them.
		news.Members = slices.Delete(news.Members, 0, 1)
	}
	for range h.rng.IntN(4) * h.rng.IntN(2) {
		p := h.rng.IntN(h.a.Partitions()+2) - 1
		r := Request{Partition: p, Tenure: uint64(h.rng.IntN(int(h.a.Number() + 2))), Fresh: h.rng.IntN(2) == 0}
		if p >= 0 && p < h.a.Partitions() && h.rng.IntN(3) > 0 {
			r.Tenure = h.a.Tenure(p)
		}
		for range h.rng.IntN(3) {
			r.Avoid = append(r.Avoid, name(1+h.rng.IntN(h.joined+1)))
		}
		news.Requests = append(news.Requests, r)
	}
	salt := h.rng.IntN(1000)
	news.Cleared = func(p int, e Entry) bool { return (p*31+e.Member*17+int(e.Number)*7+salt)%3 > 0 }
	return news
}

func TestHistories(t *testing.T) {
	seeds := test.Of(50, 400)
	made, fair := 0, 0
	for seed := range seeds {
		shareTenures(t, 1+999*(seed%2))
		rng := rand.New(rand.NewPCG(uint64(seed), 0))
		h := &acted{group: newGroup(t, 1+rng.IntN(40)), rng: rng}
		for step := range 60 {
			from, news := h.a, h.step()
			if h.plan(news) {
				made++
			}
			v := viewOf(from, news, h.a)
			if !v.limited() {
				fair++
			}
			if faults := v.faults(); len(faults) > 0 {
				t.Fatalf("seed %d, step %d: %q", seed, step, faults)
			}
			if h.a == from || step%10 > 0 {
				continue
			}
			got, err := Decode("assign", h.a.Encode())
			if err != nil || !equal(got, h.a) {
				t.Fatalf("seed %d, step %d: decoded %+v, %v; want %+v", seed, step, got, err, h.a)
			}
		}
	}
	t.Logf("%d assignments of %d steps; %d steps without a limit to fairness", made, 60*seeds, fair)
	if made < 10*seeds || fair < 20*seeds {
		t.Error("the histories have too few steps that test something")
	}
}
