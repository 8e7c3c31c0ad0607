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
		// guard:open-have. What an opener's wall has noted of slots that are taken is used by the next
		// walk only.
		//
		//mutant:replace o.src.Have = nil => _ = o.src.Have
		o.src.Have = nil
		if err != nil || own {
			// at is the point before the seal.
			return at.Position, o.afterSeal(at), err
		}
		// guard:open-followed. Before an opener seals, it checks that the floor has not passed the
		// first seal that its walk has followed.
		if err := o.follow.Confirm(ctx); err != nil {
			return sealed, begin, err
		}
		// guard:open-missing. An empty slot before the manifest's hint is not the tail: every slot
		// before the hint was acknowledged, so an object is lost.
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
		// the opener sends a wall: a row of seals for the slots that the leader uses next.
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
			// wall, or is its backstop.
			return true, nil
		case step.Frame.Next >= o.Token.Epoch():
			// guard:open-later-seal. A seal that names the opener's epoch or a later one ends the
			// takeover, unless it is the opener's own: another opener owns all slots after it.

			// guard:open-junk-seal. A seal for the opener's epoch or a later one ends the takeover only
			// if the floor has not passed the seal's slot.
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
		// backstop, far ahead of its walk.

		// guard:backstop-acked. An opener sends a backstop, a seal far ahead of its walk, only after
		// the walk has passed the manifest's hint.
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
