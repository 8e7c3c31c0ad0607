package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/store"
)

// inTwoSteps locks a mutex, checks, and unlocks; and then locks it again, and writes. That is for
// creates, or else for swaps.
func inTwoSteps(which store.Condition, between func(body []byte)) func(*broken) {
	return func(b *broken) {
		var mu sync.Mutex
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			match, swap := cond.Match()
			if cond != store.IfAbsent() && !swap || swap == (which == store.IfAbsent()) {
				return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
			}
			mu.Lock()
			now, there := current(b, key)
			mu.Unlock()
			if there != swap || now != match {
				return store.Info{}, precondition(key)
			}
			between(body)
			mu.Lock()
			defer mu.Unlock()
			return b.Store.Put(ctx, key, body, nil)
		}
	}
}

var copied atomic.Pointer[[]byte]

func copies(body []byte) {
	body = bytes.Clone(body)
	copied.Store(&body)
}

func sleeps([]byte) { time.Sleep(20 * time.Microsecond) }

// writeMutants: conditions that hold for the wrong writer, or for several.
var writeMutants = []mutant{
	{name: "create ignores its condition", fails: []string{"CreateRace", "Conditions"}, apply: putIf(
		func(_ *broken, _ context.Context, _ string, cond store.Condition) (store.Condition, error) {
			if cond == store.IfAbsent() {
				cond = store.Condition{}
			}
			return cond, nil
		})},
	{name: "create is check, then put", fails: []string{"CreateRace"}, apply: putIf(
		func(b *broken, _ context.Context, key string, cond store.Condition) (store.Condition, error) {
			if cond == store.IfAbsent() {
				if _, ok := current(b, key); ok {
					return cond, precondition(key)
				}
				dawdle()
				cond = store.Condition{}
			}
			return cond, nil
		})},
	{name: "create is check, then put, at once", fails: []string{"CreateRace"}, apply: inTwoSteps(store.IfAbsent(), func([]byte) {})},
	{name: "create is check, then copy, then put", fails: []string{"CreateRace"}, apply: inTwoSteps(store.IfAbsent(), copies)},
	{name: "create is check, then sleep, then put", fails: []string{"CreateRace"}, apply: inTwoSteps(store.IfAbsent(), sleeps)},
	{name: "swap is check, then put, at once", fails: []string{"SwapRace"}, apply: inTwoSteps(store.Condition{}, func([]byte) {})},
	{name: "swap is check, then copy, then put", fails: []string{"SwapRace"}, apply: inTwoSteps(store.Condition{}, copies)},
	{name: "swap is check, then sleep, then put", fails: []string{"SwapRace"}, apply: inTwoSteps(store.Condition{}, sleeps)},
	{name: "create is atomic only within a client", each: true, fails: []string{"CreateRace"}, apply: func(b *broken) {
		var mu sync.Mutex
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			mu.Lock()
			defer mu.Unlock()
			if cond == store.IfAbsent() {
				if _, ok := current(b, key); ok {
					return store.Info{}, precondition(key)
				}
				dawdle()
				cond = store.Condition{}
			}
			return b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
		}
	}},
	{name: "swap ignores its condition", fails: []string{"SwapRace", "SwapChain", "Conditions"}, apply: putIf(
		func(_ *broken, _ context.Context, _ string, cond store.Condition) (store.Condition, error) {
			dawdle()
			if _, ok := cond.Match(); ok {
				cond = store.Condition{}
			}
			return cond, nil
		})},
	{name: "swap is check, then put", fails: []string{"SwapRace", "SwapChain"}, apply: putIf(
		func(b *broken, _ context.Context, key string, cond store.Condition) (store.Condition, error) {
			if match, ok := cond.Match(); ok {
				if now, ok := current(b, key); !ok || now != match {
					return cond, precondition(key)
				}
				dawdle()
				cond = store.Condition{}
			}
			return cond, nil
		})},
	{name: "swap of a missing key creates it", fails: []string{"Conditions"}, apply: putIf(
		func(b *broken, _ context.Context, key string, cond store.Condition) (store.Condition, error) {
			if _, ok := cond.Match(); ok {
				if _, there := current(b, key); !there {
					cond = store.IfAbsent()
				}
			}
			return cond, nil
		})},
	{name: "T08 swap of a missing key is not found", fails: []string{"Conditions"}, apply: putIf(
		func(b *broken, _ context.Context, key string, cond store.Condition) (store.Condition, error) {
			if _, ok := cond.Match(); ok {
				if _, there := current(b, key); !there {
					return cond, &store.Error{Op: "put", Key: key, Kind: store.ErrNotFound}
				}
			}
			return cond, nil
		})},
	{name: "swap of the empty version always holds", fails: []string{"Conditions"}, apply: putIf(
		func(_ *broken, _ context.Context, _ string, cond store.Condition) (store.Condition, error) {
			if cond == store.IfMatch("") {
				cond = store.Condition{}
			}
			return cond, nil
		})},
	{name: "versions are compared without case", fails: []string{"Conditions"}, apply: putIf(
		func(b *broken, _ context.Context, key string, cond store.Condition) (store.Condition, error) {
			if match, ok := cond.Match(); ok {
				if now, there := current(b, key); there && strings.EqualFold(string(now), string(match)) {
					cond = store.IfMatch(now)
				}
			}
			return cond, nil
		})},
	{name: "versions are compared without spaces", fails: []string{"Conditions"}, apply: putIf(
		func(_ *broken, _ context.Context, _ string, cond store.Condition) (store.Condition, error) {
			if match, ok := cond.Match(); ok {
				cond = store.IfMatch(store.Version(strings.TrimSpace(string(match))))
			}
			return cond, nil
		})},
	{name: "versions are compared as numbers", fails: []string{"Conditions"}, apply: putIf(
		func(_ *broken, _ context.Context, _ string, cond store.Condition) (store.Condition, error) {
			if match, ok := cond.Match(); ok {
				cond = store.IfMatch(store.Version(strings.TrimLeft(string(match), "0")))
			}
			return cond, nil
		})},
	{name: "version 0 is absent", fails: []string{"Conditions"}, apply: putIf(
		func(_ *broken, _ context.Context, _ string, cond store.Condition) (store.Condition, error) {
			if cond == store.IfMatch("0") {
				cond = store.IfAbsent()
			}
			return cond, nil
		})},
	{name: "any version matches *", fails: []string{"Conditions"}, apply: putIf(
		func(b *broken, _ context.Context, key string, cond store.Condition) (store.Condition, error) {
			if now, there := current(b, key); there && cond == store.IfMatch("*") {
				cond = store.IfMatch(now)
			}
			return cond, nil
		})},
	{name: "swap holds for any version that ever was", fails: []string{"SwapRace", "Conditions"}, apply: func(b *broken) {
		var ever sync.Map
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			if match, ok := cond.Match(); ok {
				if _, was := ever.Load(match); was {
					cond = store.Condition{}
				}
			}
			info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
			ever.Store(info.Version, true)
			return info, err
		}
	}},
	{name: "refusals are bare errors", fails: []string{"CreateRace", "Conditions"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
		if errors.Is(err, store.ErrPrecondition) {
			err = store.ErrPrecondition
		}
		return info, err
	})},
	{name: "unsure losers", fails: []string{"CreateRace", "SwapRace", "SwapChain"}, apply: onPut(func(b *broken, ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
		dawdle()
		info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
		if errors.Is(err, store.ErrPrecondition) {
			err = &store.Error{Op: "put", Key: key, Status: 409}
		}
		return info, err
	})},
	{name: "every second writer is told that it lost", fails: []string{"CreateRace", "SwapRace"}, apply: func(b *broken) {
		var n atomic.Int64
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
			if err == nil && n.Add(1)%2 == 0 {
				return store.Info{}, precondition(key)
			}
			return info, err
		}
	}},
}
