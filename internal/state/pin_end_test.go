package state

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// The empty name is that of every snapshot's pin.
func TestUnpinNeedsAName(t *testing.T) {
	st := memstore.New(nil)
	apply(t, st, layout.Compactor, 1, 3)
	l := testOpen(st)
	p, err := l.Pin(t.Context(), &PinOptions{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unpin(t.Context(), ""); err == nil {
		t.Error("it was taken for a name")
	}
	if err := p.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}

// The request that creates a pin without a TTL is sent twice on the way. The pin is used, and removed;
// then the second copy lands. It is nobody's.
//
// guard:pin-unsettled. Without this rule: a pin without a TTL is deleted; a late copy of its create
// lands a month later; nobody knows of this pin, and it holds its version for ever. A holder that is
// too slow makes another pin.
func TestT09_PinCreatedAgainAfterItsEnd(t *testing.T) {
	mem := memstore.New(nil)
	apply(t, mem, layout.Compactor, 1, 3)
	faulty := faultstore.New(mem, &faultstore.Options{Hook: faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.PinPrefix, Fault: faultstore.Fault{Late: &faultstore.Late{}}})})
	l := testOpen(faulty)
	p, err := l.Pin(t.Context(), &PinOptions{Name: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Unpin(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	if n := faulty.Release(t.Context(), nil); n != 1 {
		t.Fatalf("%d were late", n)
	}
	pins, err := l.Pins(t.Context())
	if err != nil || len(pins) != 1 || pins[0].Lapsed(0) || !pins[0].Lapsed(time.Minute) {
		t.Errorf("%+v, %v: it must lapse", pins, err)
	}
	fixture.WantErr(t, p.Renew(t.Context()), manifest.ErrPinLost, "")
}

// The caller gives up while the creation, or the first swap, is not answered. It gets no pin, and there
// is none.
//
// guard:pin-let-go. Without this delete: A makes a named pin without a TTL; A's swap is applied, and
// its answer is lost; A's ctx ends, and A returns an error; the pin holds its version for ever, and
// nobody knows of it.
func TestPinInterrupted(t *testing.T) {
	for skip := range 2 {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New(nil)
			apply(t, mem, layout.Compactor, 1, 3)
			faulty := faultstore.New(mem, &faultstore.Options{Hook: faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.PinPrefix, Skip: skip, Fault: faultstore.Fault{Hang: true}})})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if p, err := testOpen(faulty).Pin(ctx, &PinOptions{Name: "backup"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, %v", p, err)
			}
			if pins, err := testOpen(mem).Pins(t.Context()); err != nil || len(pins) > 0 {
				t.Errorf("request %d was not answered, and left behind: %+v, %v", skip+1, pins, err)
			}
		})
	}
}

// A pin is taken away before its maker has heard of it, by its name and twice. Its object stays until
// the mark has passed it: its maker may create it again, and find it sound, and then a copy of a delete
// would hit it.
//
// guard:pin-stillborn. Without this rule: A's create of a pin is applied, and its answer is lost; a
// compactor expires and deletes the pin; A finds no pin, and creates the same key again; a late copy of
// the delete, which has no condition, deletes the pin on which A now relies. With this rule the mark
// passes the version before any delete is sent, and A drops its pin when it reads such a mark.
func TestPinTakenWhileItIsMade(t *testing.T) {
	mem := memstore.New(nil)
	apply(t, mem, layout.Compactor, 1, 3)
	l := testOpen(mem)
	made := pinDoc{Format: document.Format, Log: l.format.Log, Nonce: testNonce, Version: 3, Name: "backup", Holder: "test"}
	key := layout.PinKey("00000000-0000-4000-8000-000000000001")
	body, err := made.encode(key)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, mem, key, body)
	if err := l.Unpin(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	fixture.WantErr(t, l.Unpin(t.Context(), "backup"), manifest.ErrNoPin, "no pin")
	pins, err := l.Pins(t.Context())
	if err != nil || len(pins) != 1 || !pins[0].Expired || pins[0].Renewals != 0 {
		t.Fatalf("%+v, %v", pins, err)
	}
	p := pins[0]
	for mark, want := range map[uint64]bool{0: false, p.Version - 1: false, p.Version: true, p.Version + 1: true} {
		if got := p.Removable(mark); got != want {
			t.Errorf("removable with mark %d: %t; it holds version %d", mark, got, p.Version)
		}
	}
	if p.Renewals = 1; !p.Removable(0) {
		t.Error("its maker has found it whole")
	}
	if p.Renewals, p.Version = 0, 0; p.Removable(0) || !p.Removable(1) {
		t.Error("before the first version there is no mark")
	}
}
