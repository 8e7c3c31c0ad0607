package kubelock

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/document"
)

// FuzzRecord: whatever stands in a lock's object, there is a record or an error, and what that takes is bounded.
func FuzzRecord(f *testing.F) {
	const key = "a/b.lease.json"
	body, err := (&record{own: own{Epoch: 7, Lock: fence.ID{1}, Nonce: fence.ID{2}}}).encode(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"format":1,"a":[[[[]]]],"b":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		body = document.Sum(key, body)
		var r *record
		var err error
		test.Affords(t, len(body), 64, 64<<10, func() { r, err = decode(key, body) })
		switch {
		case err != nil && !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat):
			t.Error(err)
		case err == nil && (r.own.Nonce == (fence.ID{}) || r.own.Epoch > maxEpoch):
			t.Errorf("%q was accepted: %+v", body, r)
		}
	})
}
