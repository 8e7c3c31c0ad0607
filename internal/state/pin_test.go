package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func goldenPin() pinDoc {
	return pinDoc{
		Format: document.Format, Log: testLog, Nonce: testNonce, Version: 42, Name: "backup-2024-02", Holder: "host/7", TTL: document.Duration(time.Minute),
		Created: testTime, Renewed: testTime.Add(time.Hour), Renewals: 180, Expired: true, Reason: "it was not renewed",
	}
}

func TestGoldenPin(t *testing.T) {
	d := goldenPin()
	b, err := d.encode("pin/x")
	if err != nil {
		t.Fatal(err)
	}
	want := fixture.Golden(t, "pin.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	got, err := decodePin("pin/x", want, testLog)
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestPinRefuses(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Compactor, 1, 3)
	l := testOpen(st)
	for says, o := range map[string]*PinOptions{
		"needs a TTL, or a Name": nil,
		"at least 2s":            {TTL: time.Second},
		"at least 2":             {TTL: -1},
		"name and holder":        {Name: strings.Repeat("x", 10000)},
	} {
		if _, err := l.Pin(t.Context(), o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
	if n := len(keysBelow(t, st, layout.PinPrefix)); n != 0 {
		t.Errorf("%d pins", n)
	}
	key := layout.PinKey("00000000-0000-4000-8000-000000000001")
	body, err := func() ([]byte, error) { d := goldenPin(); return d.encode(key) }()
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string][2]string{
		"belongs to log 20": {"10111213", "20111213"}, "a TTL of -1m": {`"1m0s"`, `"-1m"`}, "cannot unmarshal": {": 42", `: "x"`}, "says format 0": {`"format": 1`, `"format": 0`},
		"at most": {"host/7", strings.Repeat("x", maxPin)}, "invalid character": {"{", "{["}, `the name ""`: {"1m0s\",", "0s\",\n\"name\": \"\",\"expired\": false, \"EXPIRED\": false,"},
	} {
		b := strings.Replace(string(body), change[0], change[1], 1)
		if strings.Contains(says, "name") {
			b = strings.ReplaceAll(b, `"expired": true`, `"expired": false`)
		}
		fixture.Put(t, st, key, document.Sum(key, []byte(b)))
		if says == "at most" {
			says = "too large"
		}
		_, err := l.Pins(t.Context())
		fixture.WantErr(t, err, fence.ErrCorrupt, key)
		fixture.WantErr(t, err, fence.ErrCorrupt, says)
	}
	fixture.Put(t, st, key, document.Sum(key, []byte(strings.Replace(string(body), `"format": 1`, `"format": 2`, 1))))
	if _, err := l.Pins(t.Context()); !errors.Is(err, fence.ErrFormat) {
		t.Error(err)
	}
}

// TestPin costs two PUTs and a LIST, and a renewal one PUT.
func TestPin(t *testing.T) {
	st, _ := fixture.Faults(nil)
	u := testUpdater(t, st, layout.Compactor, 1)
	for range 3 {
		mustUpdate(t, u, segmented(1))
	}
	l := testOpen(st)
	newest(t, st)
	if _, err := l.Newest(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.ResetCounts()
	p, err := l.Pin(t.Context(), &PinOptions{Version: 3, TTL: time.Minute, Name: "n", Holder: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if c := st.Counts(); c.Of(faultstore.Put, "") != 2 || c.Of(faultstore.List, "") != 1 || c.Of("", "") != 3 {
		t.Errorf("%v", c)
	}
	if p.Version() != 3 || p.Manifest().Version != 3 || p.Description().Name != "n" || p.Err() != nil {
		t.Errorf("%+v", p)
	}
	st.ResetCounts()
	for range 3 {
		if err := p.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if c := st.Counts(); c.Of(faultstore.Put, "") != 3 || c.Of("", "") != 3 {
		t.Errorf("%v", c)
	}
	old, err := l.Pin(t.Context(), &PinOptions{Version: 2, Name: "m"})
	if err != nil || old.Manifest().Floor.Offset != 20 {
		t.Fatalf("%+v, %v", old, err)
	}
	pins, err := l.Pins(t.Context())
	if err != nil || len(pins) != 2 || pins[0].Version != 2 || pins[0].TTL != 0 || pins[1].Version != 3 || pins[1].Renewals != 4 || pins[1].Holder != "h" || pins[0].Holder == "" {
		t.Errorf("%+v, %v", pins, err)
	}
	for range 2 {
		if err := p.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	fixture.WantErr(t, p.Renew(t.Context()), manifest.ErrPinLost, "released")
	if pins, err = l.Pins(t.Context()); err != nil || len(pins) != 1 {
		t.Errorf("%+v, %v", pins, err)
	}
	_, err = l.Pin(t.Context(), &PinOptions{Version: 4, Name: "m"})
	fixture.WantErr(t, err, ErrPruned, "versions from 1 to 3 can be pinned")
	if err := l.Unpin(t.Context(), "m"); err != nil {
		t.Error(err)
	}
	fixture.WantErr(t, l.Unpin(t.Context(), "m"), manifest.ErrNoPin, `no pin is named "m"`)
	fixture.WantErr(t, old.Renew(t.Context()), manifest.ErrPinLost, "it was deleted")
	if n := len(keysBelow(t, st, layout.PinPrefix)); n != 0 {
		t.Errorf("%d pins are left", n)
	}
}

// TestPinBeforeTheFirst: a log without a manifest can be pinned as it is.
func TestPinBeforeTheFirst(t *testing.T) {
	st := memstore.New(nil)
	p, err := testOpen(st).Pin(t.Context(), &PinOptions{TTL: time.Minute})
	if err != nil || p.Version() != 0 || !p.Manifest().Floor.Equal(frame.Start()) {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestPinRacesPrune publishes a mark before any request of Pin, or none, and then
// judges as a pruner does: it lists the pins after its mark. Either it sees the pin,
// or the reader is told.
//
// guard:pin-swap.
//
// guard:pin-after-mark. So either the process sees the mark, or the compactor sees the pin. Without
// this order: A reads a mark of 4; a compactor publishes the mark 5, lists the pins, and sees none; A
// pins version 5, and trusts the pin because of the mark 4; the compactor deletes what A's pin holds.
func TestPinRacesPrune(t *testing.T) {
	for _, version := range []uint64{0, 2} {
		for at := 0; ; at++ {
			st, inner := fixture.Faults(nil)
			apply(t, inner, layout.Compactor, 1, 3)
			l := testOpen(st)
			if _, err := l.Newest(t.Context()); err != nil {
				t.Fatal(err)
			}
			st.ResetCounts()
			var seen []PinInfo
			prune := func(context.Context) {
				u := testUpdater(t, inner, layout.Compactor, 2)
				mustUpdate(t, u, segmented(1))
				m := mustUpdate(t, u, func(m *Change) error { m.PruneMark = m.Version; return nil })
				pins, err := testOpen(inner).Pins(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				seen = pins
				for v := uint64(1); v < m.PruneMark; v++ {
					if len(pins) == 0 || pins[0].Version > v {
						if err := inner.Delete(context.Background(), layout.ManifestKey(v)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			n := 0
			done := st.BeforeFirst(func(faultstore.Op) bool { n++; return n == at }, prune)
			p, err := l.Pin(t.Context(), &PinOptions{Version: version, TTL: time.Minute})
			pruned, requests := done(), st.Counts().Of("", "")
			st.SetBefore(nil)
			what := fmt.Sprintf("version %d, mark before request %d", version, at)
			switch {
			case err != nil && (version == 0 || !errors.Is(err, ErrPruned)):
				t.Errorf("%s: %v", what, err)
			case err != nil:
				if left := keysBelow(t, inner, layout.PinPrefix); len(left) > 0 {
					t.Errorf("%s: it failed, and left %q", what, left)
				}
			default:
				held := !pruned
				for _, s := range seen {
					held = held || s.Version <= p.Version()
				}
				if pruned && p.Version() > newest(t, inner).PruneMark {
					held = true
				}
				if _, _, err := testOpen(inner).At(t.Context(), p.Version()); err != nil || !held {
					t.Errorf("%s: pinned %d, and the pruner saw %+v, %v", what, p.Version(), seen, err)
				}
			}
			if at > 0 && !pruned {
				if requests < 3 {
					t.Errorf("only %d requests", requests)
				}
				break
			}
		}
	}
}

// TestExpirePin: of a renewal and of taking it away one comes first, and the other
// is refused.
//
// guard:pin-renew. Without this condition: a compactor expires the pin, and deletes what the pin held;
// the holder's renewal overwrites the expired pin; the holder relies on objects that are gone.
//
// guard:pin-expire. Of this swap and a renewal only one is applied. Without this condition: the holder
// renews the pin in time; the compactor overwrites the renewed pin with an expired one, and deletes
// what the pin holds.
func TestExpirePin(t *testing.T) {
	for _, renewFirst := range []bool{false, true} {
		st := memstore.New(nil)
		apply(t, st, layout.Compactor, 1, 2)
		l := testOpen(st)
		p, err := l.Pin(t.Context(), &PinOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		pins, err := l.Pins(t.Context())
		if err != nil || len(pins) != 1 {
			t.Fatalf("%+v, %v", pins, err)
		}
		if renewFirst {
			if err := p.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		err = l.ExpirePin(t.Context(), pins[0], "it was not renewed for a minute")
		if renewFirst != errors.Is(err, store.ErrPrecondition) || !renewFirst && err != nil {
			t.Errorf("renewed first: %t: %v", renewFirst, err)
		}
		err = p.Renew(t.Context())
		if renewFirst {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		fixture.WantErr(t, err, manifest.ErrPinLost, "it was not renewed for a minute")
		fixture.WantErr(t, p.Err(), manifest.ErrPinLost, "renew more often")
		fixture.WantErr(t, p.Renew(t.Context()), manifest.ErrPinLost, "it was not renewed for a minute")
		if pins, err = l.Pins(t.Context()); err != nil || len(pins) != 1 || !pins[0].Expired || !pins[0].Lapsed(0) {
			t.Errorf("%+v, %v", pins, err)
		}
		if err := l.ExpirePin(t.Context(), pins[0], "again"); err != nil {
			t.Error(err)
		}
	}
}

func TestLapsed(t *testing.T) {
	at := func(age time.Duration) store.Info { return store.Info{LastModified: testTime, Date: testTime.Add(age)} }
	for _, tt := range []struct {
		name      string
		p         PinInfo
		unchanged time.Duration
		want      bool
	}{
		{"new", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}}, 0, false},
		{"almost", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}}, time.Minute - 1, false},
		{"unchanged", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}}, time.Minute, true},
		{"expired", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute, Expired: true}}, 0, true},
		{"without end", PinInfo{Pin: manifest.Pin{Renewals: 1}}, 1000 * time.Hour, false},
		{"without end, old", PinInfo{Pin: manifest.Pin{Renewals: 1}, Object: at(1000 * time.Hour)}, 0, false},
		{"by the store's clock", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}, Object: at(time.Minute + pinSlack)}, 0, true},
		{"not yet by the store's clock", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}, Object: at(time.Minute + pinSlack - 1)}, 0, false},
		{"the store says half", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}, Object: store.Info{Date: testTime}}, 0, false},
		{"the store says the other half", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: time.Minute}, Object: store.Info{LastModified: testTime}}, 0, false},
		{"for ever", PinInfo{Pin: manifest.Pin{Renewals: 1, TTL: math.MaxInt64}, Object: at(1000 * time.Hour)}, 1000 * time.Hour, false},
		{"never confirmed", PinInfo{}, unsettledTTL - 1, false},
		{"never confirmed, a minute old", PinInfo{}, unsettledTTL, true},
		{"never confirmed, a minute old by the store's clock", PinInfo{Pin: manifest.Pin{TTL: time.Hour}, Object: at(unsettledTTL + pinSlack)}, 0, true},
		{"never confirmed, and short", PinInfo{Pin: manifest.Pin{TTL: time.Second}}, time.Second, true},
	} {
		if got := tt.p.Lapsed(tt.unchanged); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestUnpinRacesRenewal goes on until it wins.
func TestUnpinRacesRenewal(t *testing.T) {
	st, inner := fixture.Faults(nil)
	apply(t, inner, layout.Compactor, 1, 1)
	p, err := testOpen(inner).Pin(t.Context(), &PinOptions{Name: "n", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64
	left.Store(3)
	st.SetBefore(func(ctx context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Put && left.Add(-1) >= 0 {
			if err := p.Renew(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	if err := testOpen(st).Unpin(t.Context(), "n"); err != nil || left.Load() > 0 {
		t.Errorf("%v, %d", err, left.Load())
	}
	fixture.WantErr(t, p.Renew(t.Context()), manifest.ErrPinLost, "it was deleted")
	left.Store(1000)
	if p, err = testOpen(inner).Pin(t.Context(), &PinOptions{Name: "n", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := testOpen(st).Unpin(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "were renewed 16 times") {
		t.Error(err)
	}
	if err := p.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPinErrors(t *testing.T) {
	deny := faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
	for _, rule := range []faultstore.Rule{
		{Kind: faultstore.Put, Fault: deny}, {Kind: faultstore.Put, Skip: 1, Fault: deny}, {Kind: faultstore.List, Prefix: layout.ManifestPrefix, Fault: deny},
	} {
		st, inner := fixture.Faults(nil)
		apply(t, inner, layout.Compactor, 1, 1)
		st.SetHook(faultstore.Script(rule))
		if p, err := testOpen(st).Pin(t.Context(), &PinOptions{Version: 1, TTL: time.Minute}); !errors.Is(err, store.ErrDenied) || p != nil {
			t.Errorf("%+v: %v, %v", rule, p, err)
		}
		if n := len(keysBelow(t, inner, layout.PinPrefix)); n != 0 {
			t.Errorf("%+v: %d pins are left", rule, n)
		}
	}
	st, inner := fixture.Faults(nil)
	apply(t, inner, layout.Compactor, 1, 1)
	p, err := testOpen(st).Pin(t.Context(), &PinOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	st.SetHook(faultstore.Script(faultstore.Rule{Fault: deny}, faultstore.Rule{Kind: faultstore.List, Fault: deny}))
	if err := p.Renew(t.Context()); !errors.Is(err, store.ErrDenied) || p.Err() != nil {
		t.Error(err)
	}
	if err := p.Renew(t.Context()); err != nil {
		t.Error("it was not lost:", err)
	}
	for _, f := range []func() error{
		func() error { _, err := testOpen(st).Pins(t.Context()); return err },
		func() error { return testOpen(st).Unpin(t.Context(), "x") },
	} {
		st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.List, Fault: deny}))
		if err := f(); !errors.Is(err, store.ErrDenied) {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.turn <- struct{}{}
	if err := p.Renew(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := p.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPinRacesTruncate folds more, gives all of it up and, if it lists no pin then, lets
// go of it, before any request of Pin. What is pinned in the end has what was appended
// behind its floor before.
//
// guard:pin-after-start. Start is the offset before which records are given up. A snapshot finds the
// records after its floor through the newest manifest. Without this check: A reads version 5, with its
// floor at record 100; a compactor raises start to 200, and lists the pins; A pins version 5; the
// compactor drops the segment with record 100, and A's snapshot lacks that record.
func TestPinRacesTruncate(t *testing.T) {
	for at := 1; ; at++ {
		st, inner := fixture.Faults(nil)
		mustUpdate(t, testUpdater(t, inner, layout.Compactor, 1), segmented(1))
		done := st.BeforeFirst(func(op faultstore.Op) bool { return op.N == at }, func(context.Context) {
			u := testUpdater(t, inner, layout.Compactor, 2)
			mustUpdate(t, u, segmented(1))
			m := mustUpdate(t, u, func(m *Change) error { return m.Truncate(m.Floor.Offset) })
			pins, err := testOpen(inner).Pins(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(pins) == 0 {
				mustUpdate(t, u, giveUp(m.Floor.Offset))
			}
		})
		p, err := testOpen(st).Pin(t.Context(), &PinOptions{TTL: time.Minute})
		if err != nil {
			t.Fatalf("at request %d: %v", at, err)
		}
		m, floor := newest(t, inner), p.Manifest().Floor.Offset
		if m.Held() > floor {
			t.Errorf("at request %d: version %d is pinned, which ends at %d, and those up to %d were let go", at, p.Version(), floor, m.Held())
		}
		if !done() {
			if at < 5 {
				t.Errorf("only %d requests", at)
			}
			return
		}
	}
}
