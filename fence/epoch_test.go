package fence

import (
	"math"
	"testing"
)

func TestPositions(t *testing.T) {
	sorted := []Position{{0, 1}, {0, 2}, {1, 1}, {1, math.MaxUint64}, {2, 1}, {math.MaxUint64, 1}}
	for i, p := range sorted {
		for j, q := range sorted {
			if got := p.Before(q); got != (i < j) {
				t.Errorf("%v.Before(%v) = %v", p, q, got)
			}
		}
	}
	if s := (Position{3, 17}).String(); s != "3/17" {
		t.Error(s)
	}
}

func TestToken(t *testing.T) {
	if (Token{}).Valid() || NewToken(0).Valid() || !NewToken(1).Valid() {
		t.Error("only epochs from 1 give a right")
	}
	if tok := NewToken(7); tok.Epoch() != 7 || tok.String() != "epoch 7" || tok != NewToken(7) {
		t.Error(tok)
	}
}
