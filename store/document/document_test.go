package document

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// TextLen bounds what JSON makes of a text: with it manifests are kept below
// their limit.
func TestTextLen(t *testing.T) {
	for c := range rune(0x3000) {
		s := strings.Repeat(string(c), 10)
		b, err := json.Marshal(s)
		if got, least := TextLen(s), len(b)+1; err != nil || got < least {
			t.Errorf("%U: %d, but it takes %d", c, got, least)
		}
	}
}

// A duration is read as it was written.
func TestDuration(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Millisecond, 10 * time.Minute, math.MaxInt64} {
		var got Duration
		b, err := Duration(d).MarshalText()
		if err == nil {
			err = got.UnmarshalText(b)
		}
		if err != nil || time.Duration(got) != d {
			t.Errorf("%v became %v: %v", d, time.Duration(got), err)
		}
	}
}
