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
// returns the relative speed of each of the others; the first has 1.
//
// The arms take turns at beginning a round, because a later arm may pay for garbage of an
// earlier one. Use many short rounds, not a few long ones: other load on the machine
// comes and goes in seconds, and the arms of a round should meet the same.
func Turns(rounds int, arms ...Arm) ([]Spread, error) {
	ratios := make([][]float64, len(arms))
	took := make([]time.Duration, len(arms))
	for round := range rounds {
		for turn := range arms {
			i := (round + turn) % len(arms)
			runtime.GC() // collect the garbage of the previous arm outside the measured time
			var err error
			if took[i], err = arms[i](); err != nil {
				return nil, err
			}
		}
		for i := range arms {
			ratios[i] = append(ratios[i], took[0].Seconds()/took[i].Seconds())
		}
	}
	spreads := make([]Spread, 0, len(arms)-1)
	for _, v := range ratios[1:] {
		spreads = append(spreads, SpreadOf(v))
	}
	return spreads, nil
}
