package s3store

import (
	"testing"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

func TestPartsArithmetic(t *testing.T) {
	o := (*Options)(nil).withDefaults()
	for _, hint := range []int64{0, 1, 1 << 30, 64 << 30, 1 << 40, 5 << 40, maxParts * int64(maxPartSize)} {
		size, inFlight, err := cloud.Parts(hint, o.PartSize, partsInFlight, maxParts, maxPartSize)
		if err != nil || size < o.PartSize || size > maxPartSize || size*maxParts < hint || inFlight < 1 || inFlight > partsInFlight {
			t.Errorf("hint %d: %d parts in flight of %d bytes, %v", hint, inFlight, size, err)
		}
		// Memory stays what it was, as long as one part fits.
		if inFlight > 1 && size*int64(inFlight) > o.PartSize*partsInFlight {
			t.Errorf("hint %d: %d bytes in flight", hint, size*int64(inFlight))
		}
	}
}

// More than 10,000 parts is an error that says what to do, before the store
// says no.
func TestTooLarge(t *testing.T) {
	b := &source{ended: func() error { return nil }, r: zeros{}, limit: 100}
	buf := make([]byte, 60)
	if n, err := b.Read(buf); n != 60 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := b.Read(buf); n != 0 || err == nil || !b.tooLarge {
		t.Errorf("got %d bytes, %v", n, err)
	}
	u := &upload{s: &Store{}, call: call{op: "upload", key: "k"}, body: b}
	if e := u.error(t.Context(), errTooLarge); e.Key != "k" || e.Hint == "" {
		t.Errorf("got %v", e)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
