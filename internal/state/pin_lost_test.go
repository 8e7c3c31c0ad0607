package state

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestPinLostReplies: whatever is lost or late on the way, the pin is there once or
// nobody believes in it.
func TestPinLostReplies(t *testing.T) {
	for name, fault := range putFaults {
		for skip := range 3 {
			st, inner := fixture.Faults(&faultstore.Options{Hook: faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.PinPrefix, Skip: skip, Fault: fault})})
			apply(t, inner, layout.Compactor, 1, 2)
			p, err := testOpen(st).Pin(t.Context(), &PinOptions{TTL: time.Minute})
			if err == nil {
				err = p.Renew(t.Context())
			}
			if err == nil {
				st.Release(t.Context(), nil)
				err = p.Renew(t.Context())
			}
			if pins, perr := testOpen(inner).Pins(t.Context()); err != nil || perr != nil || len(pins) != 1 || pins[0].Renewals < 3 || pins[0].Renewals > 4 { // one more if the first swap was not clean
				t.Errorf("%s of PUT %d: %v, %+v, %v", name, skip, err, pins, perr)
			}
		}
	}
}

// The create of a pin lands again, after it was taken away and deleted: its holder does not take it for
// its own.
//
// guard:pin-swap. Without this swap, on a store whose object versions are hashes of the contents: A's
// create of a pin is sent twice, and A relies on the pin; it was never renewed, so a compactor expires
// it after a minute, and deletes it and what it held; the second copy of the create lands, and brings
// back the version that A's first renewal expects; the renewal is applied, and A relies on objects that
// are gone.
func TestPinCreatedTwice(t *testing.T) {
	inner := memstore.New(nil)
	apply(t, inner, layout.Compactor, 1, 2)
	twin := &copycat{Store: inner}
	l := testOpen(twin)
	p, err := l.Pin(t.Context(), &PinOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Delete(t.Context(), twin.key); err != nil {
		t.Fatal(err)
	}
	// In a store whose versions are made from the content, as those of S3 are.
	fixture.Put(t, inner, twin.key, twin.body)
	fixture.WantErr(t, p.Renew(t.Context()), manifest.ErrPinLost, "open the newest version")
}

// TestPinSwappedTwice: as TestPinCreatedTwice, and a copy of the swap lands as well,
// on top of that of the create: its answer was lost, so it may be under way twice. Nobody
// relies on such a pin.
//
// guard:pin-clean. Without this check, on a store whose object versions are hashes of the contents: A's
// create of a named pin and A's swap are each sent twice; an operator removes the pin by its name, and
// a compactor deletes what it held; the second copies of A's create and swap land, and bring back the
// version that A's next renewal expects; the renewal is applied, and A relies on objects that are gone.
func TestPinSwappedTwice(t *testing.T) {
	inner := memstore.New(nil)
	apply(t, inner, layout.Compactor, 1, 2)
	twin := &copycat{Store: inner, lose: 1}
	l := testOpen(twin)
	p, err := l.Pin(t.Context(), &PinOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if len(twin.unheard) != 1 {
		t.Fatalf("%d answers were lost, want 1", len(twin.unheard))
	}
	if err := inner.Delete(t.Context(), twin.key); err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, inner, twin.key, twin.body)
	late := twin.unheard[0]
	if _, err := twin.Put(t.Context(), twin.key, late.body, &store.PutOptions{If: late.cond}); err != nil {
		t.Fatal(err)
	}
	if err := p.Renew(t.Context()); p.key == twin.key || err != nil {
		t.Errorf("it relies on what two copies have brought back: %v", err)
	}
}

// TestPinNeverConfirmed: no answer to any swap arrives.
func TestPinNeverConfirmed(t *testing.T) {
	inner := memstore.New(nil)
	apply(t, inner, layout.Compactor, 1, 2)
	_, err := testOpen(&copycat{Store: inner, lose: 1000}).Pin(t.Context(), &PinOptions{TTL: time.Minute})
	fixture.WantErr(t, err, manifest.ErrPinLost, "16 pins in a row were not confirmed")
	if left := keysBelow(t, inner, layout.PinPrefix); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// TestPinTakenBeforeItIsKnown: the reply to the create is lost, and before its sender
// looks a compactor has found that the pin stands still for its time to live, and has
// taken it away. That is no other's object: another pin will do.
//
// guard:pin-taken. The key of a new pin is new, so a pin that is there is this process's own. It
// differs from what was sent only if somebody has expired it: a compactor, or an operator who removes
// pins by their name. Without this check: A's create is applied, and its answer is lost; a compactor
// expires the pin, which was not renewed for a minute; A's second request is refused; A's snapshot
// fails, although it could begin again.
func TestPinTakenBeforeItIsKnown(t *testing.T) {
	inner := memstore.New(nil)
	apply(t, inner, layout.Compactor, 1, 2)
	st := &taker{Store: inner, t: t}
	p, err := testOpen(st).Pin(t.Context(), &PinOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if st.key == "" || p.key == st.key {
		t.Errorf("the pin is %s, and %s was taken away", p.key, st.key)
	}
	if err := p.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}

// taker takes the first pin away as soon as it is there, and then breaks the
// connection.
type taker struct {
	store.Store
	t   *testing.T
	key string
}

func (s *taker) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := s.Store.Put(ctx, key, body, opts)
	if s.key != "" || err != nil {
		return info, err
	}
	s.key = key
	l := testOpen(s.Store)
	pins, err := l.Pins(ctx)
	if err != nil || len(pins) != 1 {
		s.t.Fatalf("%d pins, %v", len(pins), err)
	}
	if err := l.ExpirePin(ctx, pins[0], "not renewed for its time to live"); err != nil {
		s.t.Fatal(err)
	}
	return store.Info{}, &store.Error{Op: "put", Key: key, Err: errors.New("connection reset")}
}

// A renewal that was applied, and whose reply never came, is no other's.
//
// guard:pin-resend. Without this rule: A's first renewal is applied, and its answer is lost; A's next
// renewal has other bytes, and expects the old object version; the store refuses it; A believes that a
// compactor has expired its pin, and gives up a snapshot that is sound.
func TestPinRenewedUnheard(t *testing.T) {
	inner := memstore.New(nil)
	apply(t, inner, layout.Compactor, 1, 2)
	st := &mute{Store: inner}
	p, err := testOpen(st).Pin(t.Context(), &PinOptions{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	held := p.Held()
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		st.applied = cancel
		if err := p.Renew(ctx); err == nil || errors.Is(err, manifest.ErrPinLost) {
			t.Fatal(err)
		}
		if p.Held() != held {
			t.Error("it counts as held from a renewal that nobody has heard of")
		}
	}
	st.applied = nil
	for range 2 {
		if err := p.Renew(t.Context()); err != nil || p.Held() <= held {
			t.Fatalf("%v, held %v, then %v", err, held, p.Held())
		}
		held = p.Held()
	}
}

// mute applies writes and does not answer, if applied is set; it is called then.
type mute struct {
	store.Store
	applied func()
}

func (s *mute) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := s.Store.Put(context.WithoutCancel(ctx), key, body, opts)
	if s.applied == nil {
		return info, err
	}
	s.applied()
	<-ctx.Done()
	return store.Info{}, &store.Error{Op: "put", Key: key, Err: context.Cause(ctx)}
}

// copycat keeps the first object that is created below pin/, and its versions are
// the contents.
type copycat struct {
	store.Store
	key  string
	body []byte

	lose    int // so many answers to swaps are lost
	unheard []sent
}

type sent struct {
	body []byte
	cond store.Condition
}

func (s *copycat) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	asked := opts.Condition()
	if want, ok := asked.Match(); ok && strings.HasPrefix(key, layout.PinPrefix) {
		now, info, err := store.Read(ctx, s.Store, key, &store.ReadOptions{Limit: maxPin})
		if err != nil || string(now) != string(want) {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
		}
		opts = &store.PutOptions{If: store.IfMatch(info.Version)}
	}
	info, err := s.Store.Put(ctx, key, body, opts)
	if strings.HasPrefix(key, layout.PinPrefix) {
		if s.key == "" {
			s.key, s.body = key, bytes.Clone(body)
		}
		info.Version = store.Version(body)
	}
	if _, swap := asked.Match(); swap && err == nil && s.lose > 0 {
		s.lose--
		s.unheard = append(s.unheard, sent{bytes.Clone(body), asked})
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: context.DeadlineExceeded}
	}
	return info, err
}

func (s *copycat) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := s.Store.Get(ctx, key, opts)
	if err != nil || !strings.HasPrefix(key, layout.PinPrefix) {
		return obj, err
	}
	body, err := io.ReadAll(obj.Body)
	if err := errors.Join(err, obj.Body.Close()); err != nil {
		return nil, err
	}
	obj.Version, obj.Body = store.Version(body), io.NopCloser(bytes.NewReader(body))
	return obj, nil
}
