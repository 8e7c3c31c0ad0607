package result

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
)

// Quantile returns a quantile of durations. It sorts them.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[max(int(math.Ceil(q*float64(len(d))))-1, 0)]
}

// Distribution returns the line of a cumulative distribution, in milliseconds.
func Distribution(d []time.Duration) plotter.XYs {
	var xys plotter.XYs
	for i := 1; i < 200; i++ {
		q := float64(i) / 200
		xys = append(xys, plotter.XY{X: float64(Quantile(d, q)) / float64(time.Millisecond), Y: q})
	}
	return xys
}

// Median returns the median of numbers. It sorts them.
func Median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Spread summarises several rounds of a measure.
type Spread struct {
	Median float64
	Note   string // from the least to the greatest
}

// SpreadOf summarises the numbers of several rounds. It sorts them.
func SpreadOf(v []float64) Spread {
	m := Median(v)
	return Spread{m, fmt.Sprintf("%s to %s", Number(v[0]), Number(v[len(v)-1]))}
}

// Arm is one side of a comparison. It returns the time that counts.
type Arm func() (time.Duration, error)

// Turns compares the speed of the other arms with that of the first, in many rounds. It
// returns the relative speed of each of the others; the first has 1. See [Times].
func Turns(rounds int, arms ...Arm) ([]Spread, error) {
	took, err := Times(rounds, arms...)
	if err != nil {
		return nil, err
	}
	spreads := make([]Spread, 0, len(arms)-1)
	for _, own := range took[1:] {
		spreads = append(spreads, Speed(own, took[0]))
	}
	return spreads, nil
}

// Speed is how fast one arm was beside another: in each round the other's time to its own.
func Speed(own, other []time.Duration) Spread {
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = other[i].Seconds() / own[i].Seconds()
	}
	return SpreadOf(ratios)
}

// Times returns what each arm took in each round.
//
// The arms take turns at beginning a round, because a later arm may pay for garbage of an
// earlier one. Use many short rounds, not a few long ones: other load on the machine
// comes and goes in seconds, and the arms of a round should meet the same.
func Times(rounds int, arms ...Arm) ([][]time.Duration, error) {
	took := make([][]time.Duration, len(arms))
	for i := range took {
		took[i] = make([]time.Duration, rounds)
	}
	for round := range rounds {
		for turn := range arms {
			i := (round + turn) % len(arms)
			runtime.GC() // collect the garbage of the previous arm outside the measured time
			var err error
			if took[i][round], err = arms[i](); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}
