package result

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}, {[]float64{9, 1, 2, 4}, 3}} {
		if got := Median(slices.Clone(c.of)); got != c.want {
			t.Errorf("the median of %v: %v, want %v", c.of, got, c.want)
		}
	}
}

// An arm twice as fast as the first reaches 2. Each arm begins equally many rounds.
func TestTurns(t *testing.T) {
	var order []int
	arm := func(i int, took time.Duration) Arm {
		return func() (time.Duration, error) { order = append(order, i); return took, nil }
	}
	v, err := Turns(3, arm(0, time.Second), arm(1, 500*time.Millisecond), arm(2, 4*time.Second))
	if err != nil || len(v) != 2 || v[0] != (Spread{2, "2 to 2"}) || v[1] != (Spread{0.25, "0.25 to 0.25"}) {
		t.Errorf("%v, %v", v, err)
	}
	if got, want := fmt.Sprint(order), "[0 1 2 1 2 0 2 0 1]"; got != want {
		t.Errorf("in the order %s, want %s", got, want)
	}
	failed := errors.New("failed")
	if _, err := Turns(3, arm(0, time.Second), func() (time.Duration, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Errorf("an arm fails: %v", err)
	}
}
