package result

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
)

// Quantile of durations, which it sorts.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(math.Ceil(q*float64(len(d))))-1+btoi(q == 0), len(d)-1)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Distribution is the line of a cumulative distribution, in milliseconds.
func Distribution(d []time.Duration) plotter.XYs {
	var xys plotter.XYs
	for i := 1; i < 200; i++ {
		q := float64(i) / 200
		xys = append(xys, plotter.XY{X: float64(Quantile(d, q)) / float64(time.Millisecond), Y: q})
	}
	return xys
}

// Median of numbers, which it sorts.
func Median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Spread is what several rounds have measured.
type Spread struct {
	Median float64
	Note   string // from the least to the most
}

// SpreadOf sorts what was measured.
func SpreadOf(v []float64) Spread {
	m := Median(v)
	return Spread{m, fmt.Sprintf("%s to %s", Number(v[0]), Number(v[len(v)-1]))}
}

// Arm is one of the things that are compared. It returns the time that counts.
type Arm func() (time.Duration, error)

// Turns compares the speed of other arms with that of the first, so many times over, and
// returns what each of the others reaches, the first being 1. Each round is begun by
// another arm, since who comes later may meet what those before have left behind. Many
// short rounds tell more than a few long ones: what else the machine does comes and goes
// in seconds, and a round's arms had better meet the same.
func Turns(rounds int, arms ...Arm) ([]Spread, error) {
	ratios := make([][]float64, len(arms))
	took := make([]time.Duration, len(arms))
	for round := range rounds {
		for turn := range arms {
			i := (round + turn) % len(arms)
			runtime.GC() // what another arm has left is collected at nobody's expense
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
