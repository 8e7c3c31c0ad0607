package compactor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test"
)

func sized(sizes ...int64) []state.Segment {
	var segs []state.Segment
	for i, size := range sizes {
		segs = append(segs, state.Segment{Key: fmt.Sprint(i), First: uint64(i), End: uint64(i + 1), Size: size})
	}
	return segs
}

func TestLevels(t *testing.T) {
	l := levels{full: 512, fanIn: 4, n: 3} // the levels begin at 512, 128, 32 and 0
	for name, c := range map[string]struct {
		sizes      []int64
		begin, end int
	}{
		"none":                            {nil, 0, 0},
		"one":                             {[]int64{40}, 0, 0},
		"too little to rise":              {[]int64{40, 40, 40}, 0, 0},
		"enough":                          {[]int64{40, 40, 48}, 0, 3},
		"all of like size":                {[]int64{40, 40, 40, 40, 40}, 0, 5},
		"only the small ones":             {[]int64{200, 10, 10, 12}, 1, 4},
		"small ones before a larger":      {[]int64{10, 10, 10, 98}, 0, 4},
		"larger ones, behind them few":    {[]int64{40, 40, 40, 40, 10, 10}, 0, 4},
		"newest first":                    {[]int64{40, 40, 40, 40, 10, 10, 10, 10}, 4, 8},
		"full ones stay":                  {[]int64{600, 600, 600, 600}, 0, 0},
		"a full one parts its sides":      {[]int64{64, 60, 600, 60, 64}, 0, 0},
		"two that fill a segment":         {[]int64{300, 300}, 0, 2},
		"as many as fill it":              {[]int64{300, 300, 300}, 0, 2},
		"not past a larger one":           {[]int64{300, 40, 40}, 0, 0},
		"the last level has no least":     {[]int64{1, 1, 1, 1, 1, 1, 1}, 0, 0},
		"at the last level total decides": {[]int64{31, 1}, 0, 2},
		"empty is a size too":             {[]int64{0, 31, 0, 1}, 0, 4},
	} {
		segs := sized(c.sizes...)
		got := l.plan(segs)
		if len(got) != c.end-c.begin || len(got) > 0 && got[0].Key != segs[c.begin].Key {
			t.Errorf("%s: of %v it picks %v, want [%d:%d]", name, c.sizes, got, c.begin, c.end)
		}
	}
	for size, want := range map[int64]int{0: 3, 31: 3, 32: 2, 127: 2, 128: 1, 511: 1, 512: 0, 1 << 40: 0} {
		if got := l.of(size); got != want {
			t.Errorf("%d bytes are at level %d, want %d", size, got, want)
		}
	}
}

// What goes as a whole, because it is kept for a time, stays small in what it is
// kept by.
func TestLevelsWithRetention(t *testing.T) {
	day := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	var segs []state.Segment
	for i := range 10 {
		at := day.Add(time.Duration(i) * time.Hour)
		segs = append(segs, state.Segment{Key: fmt.Sprint(i), First: uint64(10 * i), End: uint64(10 * (i + 1)), Size: 40, From: at, To: at.Add(time.Hour)})
	}
	for name, c := range map[string]struct {
		l          levels
		begin, end int
	}{
		"by time":    {levels{full: 512, fanIn: 4, n: 3, span: 4 * time.Hour}, 6, 10},
		"by records": {levels{full: 512, fanIn: 4, n: 3, records: 50}, 5, 10},
		"too short":  {levels{full: 512, fanIn: 4, n: 3, span: 2 * time.Hour}, 0, 0},
		"not one":    {levels{full: 512, fanIn: 4, n: 3, span: time.Minute}, 0, 0},
	} {
		got := c.l.plan(segs)
		if len(got) != c.end-c.begin || len(got) > 0 && got[0].Key != segs[c.begin].Key {
			t.Errorf("%s: it picks %v, want [%d:%d]", name, got, c.begin, c.end)
		}
	}
}

// simulation is what becomes of folds with a rule.
type simulation struct {
	testing.TB
	levels
	segs  []state.Segment
	times []int // how often the records of each segment were written
	next  uint64

	added, written float64 // bytes
	most           int     // times that a record was written
	segments       int     // at most, at once
	merges         int
}

// fold adds a segment and merges all there is to merge.
func (s *simulation) fold(size int64) {
	s.segs = append(s.segs, state.Segment{First: s.next, End: s.next + 1, Size: size})
	s.times = append(s.times, 1)
	s.next++
	s.added, s.written = s.added+float64(size), s.written+float64(size)
	for {
		old := s.plan(s.segs)
		if old == nil {
			break
		}
		at := slices.IndexFunc(s.segs, func(g state.Segment) bool { return g.First == old[0].First })
		highest := s.n
		for i, o := range old {
			if s.segs[at+i] != o {
				s.Fatal("the plan is no run of neighbours")
			}
			highest = min(highest, s.of(o.Size))
		}
		m := merged(old)
		if len(old) < 2 || highest == 0 || s.of(m.Size) >= highest || m.Size >= 2*s.full {
			s.Fatalf("%d segments, one at level %d, become %d bytes at level %d", len(old), highest, m.Size, s.of(m.Size))
		}
		s.merges++
		s.written += float64(m.Size)
		n := 1 + slices.Max(s.times[at:at+len(old)])
		s.segs = slices.Replace(s.segs, at, at+len(old), m)
		s.times = slices.Replace(s.times, at, at+len(old), n)
		s.most = max(s.most, n)
	}
	s.segments = max(s.segments, len(s.segs))
}

// What holds for all logs and settings: a plan is a run of neighbours that are not
// full and fit together; it rises; planning ends; no record is written more than
// once for its fold and once for each level.
func TestLevelsProperties(t *testing.T) {
	for seed := range test.Of(uint64(15), 60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := levels{full: int64(1) << (10 + rng.IntN(20)), fanIn: 2 + rng.IntN(40), n: 1 + rng.IntN(5)}
		s := &simulation{TB: t, levels: l}
		mean := float64(l.full) * math.Pow(2, 2-16*rng.Float64())
		spread := rng.Float64() * 2.5
		for range 2000 {
			s.fold(min(int64(mean*math.Exp(spread*rng.NormFloat64()))+1, 2*l.full-1))
		}
		if s.most > 1+l.n || s.written > s.added*float64(1+l.n) {
			t.Errorf("seed %d: %+v: records are written %d times, bytes %.1f times", seed, l, s.most, s.written/s.added)
		}
		if s.merges > 2000 {
			t.Errorf("seed %d: %d merges of 2000 folds", seed, s.merges)
		}
	}
}

// The numbers that are promised: with the defaults, over the life of a record, it
// is written four times at most, after a million commits of any size and however
// many of them a fold takes; and few segments are left, at any time.
func TestWriteAmplification(t *testing.T) {
	o := (*Options)(nil).withDefaults()
	const commits = 1_000_000
	worst := 0.0
	tried := test.Square(4, 4)
	for i, size := range []int64{50, 1 << 10, 16 << 10, 256 << 10} {
		for j, each := range []int{32, 64, 500, 5000} { // commits in a fold
			if !tried(i, j) {
				continue
			}
			for _, spread := range []float64{0, 1.5} {
				rng := rand.New(rand.NewPCG(1, 2))
				s := &simulation{TB: t, levels: o.levels()}
				for n := 0; n < commits; n += each {
					sum := 96 + 32 + 128*(1+int64(each)*size>>20) // an index, and the headers of blocks
					sum += int64(float64(int64(each)*size) * math.Exp(spread*rng.NormFloat64()-spread*spread/2))
					s.fold(min(sum, o.SegmentBytes))
				}
				worst = max(worst, s.written/s.added)
				if amp := s.written / s.added; s.most > 4 || amp > 4 {
					t.Errorf("commits of %d bytes, %d a fold: they are written %d times, %.2f on average", size, each, s.most, amp)
				}
				// Full ones, what full folds have parted, and what waits at each level.
				if room := 2*int(s.added/float64(s.full)) + 400; s.segments > room {
					t.Errorf("commits of %d bytes, %d a fold: %d segments for %.0f bytes, merged into fewer than %d", size, each, s.segments, s.added, room)
				}
			}
		}
	}
	t.Logf("bytes are written %.2f times at most", worst)
}
