package leader

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

func sample() Record {
	return Record{
		Epoch: 7, State: Draining, Holder: "a", Nonce: newNonce(), Validity: 15 * time.Second, Renew: 6 * time.Second,
		Acquired: time.Unix(1e9, 5).UTC(), Renewed: time.Unix(1e9+60, 0).UTC(), Renewals: 10, Transitions: 3,
		Reason: "x", ExpiredBy: "c", Wait: time.Second, Announce: "tcp://here", Key: layout.LockKey("lock/", 7), Version: "v",
	}
}

func TestRecordRoundTrip(t *testing.T) {
	want := sample()
	body, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(layout.LockKey("lock/", 7), 7, body, store.Info{Version: "v"})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

// Any bytes decode to a record or to an error that is ErrCorrupt or ErrFormat. A
// record that is accepted makes sense to the state machine.
func FuzzDecode(f *testing.F) {
	body, err := sample().encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "{}", "null", "[]", `{"format":1}`, `{"format":9}`, string(body)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Record
		var err error
		summed := document.Sum(layout.LockKey("", 7), body)
		test.Affords(t, len(body), 64, 64<<10, func() { r, err = decode(layout.LockKey("lock/", 7), 7, summed, store.Info{}) })
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		l := r.lock()
		if r.Epoch != 7 || !l.State.Valid() || r.Validity <= 0 || r.Validity > maxValidity || r.Renew <= 0 || r.Renew > r.Validity || r.Wait < 0 {
			t.Fatalf("%q was accepted: %+v", body, r)
		}
	})
}
