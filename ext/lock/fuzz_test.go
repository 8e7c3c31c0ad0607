package lock

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/document"
)

// FuzzBucket: whatever stands in a bucket's object, there is a bucket or an error, and what that takes is bounded.
//
// guard:lock-great-token. Without this check: somebody writes a bucket whose token is the greatest number there is. The next
// one is 0, and tokens begin again.
func FuzzBucket(f *testing.F) {
	const key = "locks/name/000.json"
	add := func(b bucket) {
		b.Format = document.Format
		body, err := document.Encode(key, b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	e := entry{Name: "a", Token: 7, Session: fence.ID{1}, Holder: "h", ValidityMS: 15000}
	add(bucket{Token: 7, Held: []entry{e}})
	add(bucket{Token: 1<<64 - 1, Held: []entry{}})
	add(bucket{Token: 6, Held: []entry{e}})
	add(bucket{Token: 7, Held: []entry{e, e}})
	add(bucket{Token: 7, Held: []entry{{Name: "a", Token: 7}}})
	f.Fuzz(func(t *testing.T, body []byte) {
		body = document.Sum(key, body)
		var b *bucket
		var err error
		test.Affords(t, len(body), 64, 64<<10, func() { b, err = decodeBucket(key, body) })
		switch {
		case err != nil && !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat):
			t.Error(err)
		case err == nil && b.Token > fence.MaxEpoch:
			t.Errorf("%q was accepted", body)
		case err == nil:
			for _, e := range b.Held {
				if found := b.find(e.Name); found == nil || found.Token != e.Token || e.Token > b.Token || b.without(e.Name).find(e.Name) != nil || b.with(e).find(e.Name) == nil {
					t.Errorf("%q was accepted: %+v", body, b)
				}
			}
		}
	})
}
