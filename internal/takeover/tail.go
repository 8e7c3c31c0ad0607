package takeover

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// sealTail walks the chain from start and gets a seal of this opener onto its first empty
// slot. It returns the sealed slot and the point after the seal.
func (o *opener) sealTail(ctx context.Context, start frame.Point) (sealed fence.Position, begin frame.Point, err error) {
	o.follow = &chain.Follower{Source: o.src, Floor: o.floor}
	for at, read := start, uint64(0); ; {
		own, err := o.walk(ctx, &at, &read)
		// guard:open-have. An opener's wall sends seals to a row of slots at once, and notes what
		// it finds in slots that are taken. Only the next walk uses these notes. Without this: the
		// wall notes the first part of a large object; the object is folded and pruned; another
		// opener's late seal falls into the hole; the walk asks for the rest, finds another object
		// there, and takes the slot for empty (guard rest-match); the opener's seal is refused
		// there; each later walk uses the old note, and does the same; the takeover never ends.
		//
		//mutant:replace o.src.Have = nil => _ = o.src.Have
		o.src.Have = nil
		if err != nil || own {
			// at is the point before the seal.
			return at.Position, o.afterSeal(at), err
		}
		// guard:open-followed. Before an opener seals, it checks that the floor has not passed the
		// first seal that its walk has followed. Without this check: opener B of epoch 3 has read slot
		// 1/3, and is paused; the leader of epoch 1 goes on, and slots up to 1/49 are folded and
		// pruned; opener Z of epoch 2 creates a late seal in the hole 1/4, and dies; B follows it into
		// the empty epoch 2, and seals slot 2/1, which the floor 1/50 has not passed; B believes that
		// it leads, and the leader of epoch 1 goes on.
		if err := o.follow.Confirm(ctx); err != nil {
			return sealed, begin, err
		}
		// guard:open-missing. An empty slot before the manifest's hint is not the tail: every slot
		// before the hint was acknowledged, so an object is lost. Without this check: slots 15 to 19
		// were acknowledged, and somebody deletes slot 15; slot 20, where the hint points, is damaged,
		// so an opener begins again at the floor; it takes slot 15 for the tail, and seals it; slots 16
		// to 19 are void for ever, and nobody can put the object of slot 15 back.
		if at.Position.Before(o.acked) {
			return sealed, begin, o.follow.Classify(ctx, at.Position, fmt.Errorf("%w: %s is missing; the manifest says that the log was acknowledged up to %v",
				fence.ErrCorrupt, layout.DataKey(at.Position), o.acked))
		}
		sent := o.follow.Beyond.Seq // the last slot that the leader has sent, if there is one
		if sent == 0 {
			a := o.seal(ctx, at.Position)
			if a.err != nil || a.own {
				return at.Position, o.afterSeal(at), a.err
			}
			// If the slot holds another opener's seal, the walk goes on after it. If it holds
			// data, a leader is alive and has more in flight.
			if h, err := frame.DecodeHeader(a.found.Body); err != nil || h.Kind != frame.Data {
				continue
			}
			sent = at.Position.Seq + uint64(o.InFlight)
		}
		// guard:open-wall. If the leader's data comes first in the slot that an opener wants to seal,
		// the opener sends a wall: a row of seals for the slots that the leader uses next. Without the
		// wall: the leader keeps its pipeline full; each time the opener's seal comes to the first
		// empty slot, the leader's object is there already; only after many windows of objects does the
		// opener send a backstop; the leader comes to that slot thousands of slots later.
		//
		//mutant:replace o.wall(ctx, at.Position, sent) => error(nil)
		if err := o.wall(ctx, at.Position, sent); err != nil {
			return sealed, begin, err
		}
	}
}

// walk reads the chain from *at and moves *at along, to the first empty slot, or to a seal of
// this opener: then own is true. read counts the objects that were read in this epoch.
func (o *opener) walk(ctx context.Context, at *frame.Point, read *uint64) (own bool, err error) {
	for step, err := range o.follow.Walk(ctx, *at) {
		switch {
		case err != nil:
			return false, err
		case step.Frame.Kind != frame.Seal:
			*read++
		case step.Frame.Nonce == o.nonce:
			// guard:open-own. An opener takes a seal with its own nonce for its own: it comes from its
			// wall, or is its backstop. Without this check: the opener's wall is applied; its walk
			// meets a seal of the wall, which names the opener's own epoch; the opener takes this seal
			// for that of another process with the same token, and gives up.
			return true, nil
		case step.Frame.Next >= o.Token.Epoch():
			// guard:open-later-seal. A seal that names the opener's epoch or a later one ends the
			// takeover, unless it is the opener's own: another opener owns all slots after it. Without
			// this check: B has sealed the log for epoch 3, and has not published a manifest yet;
			// zombie opener Z of epoch 2 follows B's seal, and puts its own seal into the slot that B
			// is about to use; B is refused there; a seal in epoch 3 cannot name epoch 2, so to readers
			// the log is damaged.

			// guard:open-junk-seal. A seal for the opener's epoch or a later one ends the takeover only
			// if the floor has not passed the seal's slot. Without this check: opener B of epoch 3 is
			// paused before slot 1/4, and this slot is pruned; opener Z of epoch 5, paused too, puts
			// its seal into the hole 1/4, and dies; B meets this seal, and gives up as fenced, although
			// epoch 5 was never opened.
			//
			//mutant:replace o.follow.Confirm(ctx) => error(nil)
			if err := o.follow.Confirm(ctx); err != nil {
				return false, err
			}
			return false, &fence.FencedError{Role: string(layout.Writer), Epoch: o.Token.Epoch(), By: step.Frame.Next, Key: layout.DataKey(step.From.Position)}
		default:
			*read = 0
		}
		*at = step.To
		o.Read(&step)
		// guard:open-backstop. An opener that has read many objects of one epoch puts a seal, the
		// backstop, far ahead of its walk. Without the backstop: a leader appends faster than the
		// opener reads; the walk never comes to an empty slot; the takeover never ends.

		// guard:backstop-acked. An opener sends a backstop, a seal far ahead of its walk, only after
		// the walk has passed the manifest's hint. Every slot before the hint was acknowledged, and
		// must not be sealed. Without this check: slots up to 40 were acknowledged, slot 33 is lost,
		// and the hint's own slot is damaged; so an opener walks from the floor; its backstop is
		// applied in slot 33, before its walk comes there; the opener begins its epoch after that seal,
		// and slots 34 to 40 are void.
		//
		//mutant:replace !at.Position.Before(o.acked) => true
		if *read >= longWalk*uint64(o.Window) && !at.Position.Before(o.acked) {
			o.stopAhead(ctx, at.Position, *read)
		}
		if err := o.backstop.failed(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// seal creates this opener's seal in slot p. Its outcome is certain: either the seal is
// there, and own is true, or found is.
func (o *opener) seal(ctx context.Context, p fence.Position) answer {
	body, _ := o.sealOf(p)
	_, err := store.Create(ctx, o.src.Store, layout.DataKey(p), body, &store.WriteOptions{
		Settle:   o.Settle,
		Identity: chain.Head, // what is there instead has to be read in any case
	})
	var conflict *store.ConflictError
	switch {
	case err == nil:
		return answer{own: true, found: chain.Object{Body: body, Info: store.Info{Key: layout.DataKey(p), Size: int64(len(body))}}}
	case errors.As(err, &conflict) && errors.Is(err, store.ErrPrecondition):
		return answer{found: chain.Object{Body: conflict.Body, Info: conflict.Found}}
	}
	return answer{err: fmt.Errorf("sealing %s: %w", layout.DataKey(p), err)}
}

// readOrSeal reads a slot that is probably taken, and seals it if it is empty.
func (o *opener) readOrSeal(ctx context.Context, p fence.Position) answer {
	found, err := o.src.ReadHead(ctx, p)
	if errors.Is(err, store.ErrNotFound) {
		return o.seal(ctx, p)
	}
	body, _ := o.sealOf(p)
	return answer{found: found, own: string(found.Body) == string(body), err: err}
}

// sealOf returns this opener's seal for slot p, the same each time.
func (o *opener) sealOf(p fence.Position) (body []byte, h frame.Header) {
	h = frame.Header{Log: o.src.Log, Nonce: o.nonce, Position: p, Time: o.time}
	body = frame.EncodeSeal(&h, o.Token.Epoch())
	return body, h
}

// afterSeal returns the point after this opener's seal at a point.
func (o *opener) afterSeal(at frame.Point) frame.Point {
	_, h := o.sealOf(at.Position)
	return at.After(&h, nil)
}
