package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// repair is what can be done about a problem without a guess.
type repair struct {
	what string // "create the seal again"
	do   func(context.Context) error
}

// repairable reports a problem, and repairs it if the options say so.
func (v *verifier) repairable(ctx context.Context, key string, r repair, format string, args ...any) {
	f := Finding{Key: key, What: fmt.Sprintf(format, args...), Remedy: "`fencepost verify --repair` can " + r.what, Repair: r.what}
	if v.opts.Repair && !v.opts.DryRun {
		if err := r.do(ctx); err != nil {
			f.Remedy, f.Repair = restore+"; "+keep, ""
			f.What += fmt.Sprintf("; it could not be repaired: %s", about(key, err))
		} else {
			f.Repaired = true
		}
	}
	add(&v.report.Problems, &v.report.MoreProblems, v.opts.MaxFindings, f)
}

// reseal creates a seal before the floor again. All that matters of it is in the manifest. Only
// its time of day is lost, which is for people.
func (v *verifier) reseal(ctx context.Context, s state.Seal) error {
	key := layout.DataKey(s.Position)
	h := frame.Header{Log: v.report.Log, Nonce: s.Nonce, Position: s.Position, Time: v.opts.Clock.Wall()}
	body := frame.EncodeSeal(&h, s.Next)
	write := &store.WriteOptions{Settle: v.opts.Settle}
	found, info, err := store.Read(ctx, v.st, key, &store.ReadOptions{Limit: 1 << 20, Settle: v.opts.Settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		_, err = store.Create(ctx, v.st, key, body, write)
	case err != nil:
		return err
	default:
		// guard:reseal-sound. A repair of a lost seal replaces damaged bytes only, and never a sound
		// object.
		//
		//mutant:replace derr == nil && => derr != nil &&
		there, derr := frame.DecodeHeader(found)
		if derr == nil && (there.Nonce != s.Nonce || there.Next != s.Next) {
			return fmt.Errorf("%w: it holds something else, which is sound: %v with nonce %v", fence.ErrCorrupt, there.Kind, there.Nonce)
		}
		_, err = store.Swap(ctx, v.st, key, body, info.Version, write)
	}
	if err != nil && !errors.Is(err, store.ErrPrecondition) {
		return err
	}
	return v.seal(ctx, s) // somebody else may have repaired it, or written there
}

// unlock deletes an old lock that cannot be read.
func (v *verifier) unlock(ctx context.Context, key string) error {
	return store.DeleteAll(ctx, v.st, []string{key}, v.opts.Settle)
}

// badPage reports a page of the newest manifest that is damaged or lost. It can be repaired if
// another version in the store has all its entries, or has them with the edits after it on the chain.
func (v *verifier) badPage(ctx context.Context, p state.PageRef, bad error) error {
	body, err := v.log.Rebuild(ctx, v.m, p.Key, v.editsBetween)
	if err != nil && !unreadable(err) {
		return err
	}
	const what = "manifest %d names this page of a list, which cannot be read: %s"
	if body == nil {
		v.problem(p.Key, restore+"; "+keep, what, v.m.Version, about(p.Key, bad))
		return nil
	}
	v.repairable(ctx, p.Key, repair{"write the page again, with the entries that an older version of the manifest and the log after it have", func(ctx context.Context) error {
		write := &store.WriteOptions{Settle: v.opts.Settle}
		_, info, err := store.Read(ctx, v.st, p.Key, &store.ReadOptions{Limit: fence.MaxManifest, Settle: v.opts.Settle})
		switch {
		case errors.Is(err, store.ErrNotFound):
			_, err = store.Create(ctx, v.st, p.Key, body, write)
		case err == nil:
			_, err = store.Swap(ctx, v.st, p.Key, body, info.Version, write)
		}
		if err != nil && !errors.Is(err, store.ErrPrecondition) {
			return err
		}
		return p.Check(ctx) // somebody else may have repaired it
	}}, what, v.m.Version, about(p.Key, bad))
	return nil
}

// maxRedone bounds the bytes of the edits that are applied to an older version again.
const maxRedone = 64 << 20

// editsBetween reads edits that are folded already. Their objects stay for the grace period, and
// longer if an older version is pinned.
func (v *verifier) editsBetween(ctx context.Context, from, to frame.Point) (edits []state.AppliedEdit, err error) {
	at, size := from, 0
	// It needs no Follower: a walk that went through a hole does not end at the point of the manifest, which has a checksum.
	for step, err := range v.chain.Walk(ctx, from) {
		if err != nil && unreadable(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		if step.Frame.Kind == frame.Edit {
			e, err := state.DecodeEdit(step.Frame.Edit())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", layout.DataKey(step.From.Position), err)
			}
			edits = append(edits, state.AppliedEdit{Position: step.From.Position, Offset: step.From.Offset, Edit: e})
			size += len(step.Frame.Edit())
		}
		if at = step.To; !at.Before(to) || size > maxRedone {
			break
		}
	}
	if !at.Equal(to) {
		return nil, fmt.Errorf("%w: the log cannot be read from %v to %v any more", store.ErrNotFound, from.Position, to.Position)
	}
	return edits, nil
}
