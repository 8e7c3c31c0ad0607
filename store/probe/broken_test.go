package probe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// Each of these breaks the contract in a way that some real store does.

type putFunc func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error)

// putter replaces Put.
type putter struct {
	store.Store
	put putFunc
}

func (p *putter) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	return p.put(ctx, p.Store, key, body, opts.Condition())
}

func isSwap(c store.Condition) bool { _, ok := c.Match(); return ok }

func precondition(key string) error {
	return &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Status: 412}
}

func exists(ctx context.Context, st store.Store, key string) (store.Version, bool, error) {
	obj, err := st.Get(ctx, key, nil)
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	return obj.Version, true, obj.Body.Close()
}

// checkThenPut honours the conditions for which it is asked, in two steps.
func checkThenPut(which func(store.Condition) bool) putFunc {
	return func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		if !which(cond) {
			return st.Put(ctx, key, body, &store.PutOptions{If: cond})
		}
		v, ok, err := exists(ctx, st, key)
		if err != nil {
			return store.Info{}, err
		}
		match, swap := cond.Match()
		if cond == store.IfAbsent() && ok || swap && (!ok || v != match) {
			return store.Info{}, precondition(key)
		}
		for range 20 { // a request takes its time
			runtime.Gosched()
		}
		return st.Put(ctx, key, body, nil)
	}
}

func ignore(which func(store.Condition) bool) putFunc {
	return func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		if which(cond) {
			cond = store.Condition{}
		}
		return st.Put(ctx, key, body, &store.PutOptions{If: cond})
	}
}

func ignoreAll(st store.Store) store.Store {
	return &putter{st, ignore(func(store.Condition) bool { return true })}
}

func ignoreSwap(st store.Store) store.Store { return &putter{st, ignore(isSwap)} }

func ignoreCreate(st store.Store) store.Store { return &putter{st, ignore(isCreate)} }

func twoStepCreate(st store.Store) store.Store {
	return &putter{st, checkThenPut(isCreate)}
}

func twoStepSwap(st store.Store) store.Store { return &putter{st, checkThenPut(isSwap)} }

// swapCreates takes a swap of a missing key for a create.
func swapCreates(st store.Store) store.Store {
	return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		if _, ok, err := exists(ctx, st, key); err == nil && !ok && isSwap(cond) {
			cond = store.IfAbsent()
		}
		return st.Put(ctx, key, body, &store.PutOptions{If: cond})
	}}
}

// refusesButWrites answers 412 and overwrites.
func refusesButWrites(st store.Store) store.Store {
	return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		info, err := st.Put(ctx, key, body, &store.PutOptions{If: cond})
		if store.OutcomeOf(err) == store.Refused {
			_, _ = st.Put(ctx, key, body, nil)
		}
		return info, err
	}}
}

func answers(err error, which func(store.Condition) bool) func(store.Store) store.Store {
	return func(st store.Store) store.Store {
		return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
			if which(cond) {
				return store.Info{}, err
			}
			return st.Put(ctx, key, body, &store.PutOptions{If: cond})
		}}
	}
}

// allLose answers 412 to all creators of a key as soon as two of them meet.
func allLose(st store.Store) store.Store {
	var mu sync.Mutex
	busy, met := map[string]int{}, map[string]bool{}
	return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		if cond != store.IfAbsent() {
			return st.Put(ctx, key, body, &store.PutOptions{If: cond})
		}
		mu.Lock()
		busy[key]++
		met[key] = met[key] || busy[key] > 1
		mu.Unlock()
		for range 200 {
			runtime.Gosched()
		}
		mu.Lock()
		defer mu.Unlock()
		busy[key]--
		if met[key] {
			return store.Info{}, precondition(key)
		}
		return st.Put(ctx, key, body, &store.PutOptions{If: cond})
	}}
}

// quotes shows versions in quotes where they are written and without where they
// are listed.
type quotes struct{ store.Store }

func (q quotes) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if v, ok := opts.Condition().Match(); ok {
		opts = &store.PutOptions{If: store.IfMatch(store.Version(strings.Trim(string(v), `"`)))}
	}
	info, err := q.Store.Put(ctx, key, body, opts)
	info.Version = `"` + info.Version + `"`
	return info, err
}

func (q quotes) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := q.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Version = `"` + obj.Version + `"`
	}
	return obj, err
}

// quotesNotStripped shows versions in quotes everywhere and never finds one so
// written again.
type quotesNotStripped struct{ quotes }

func (q quotesNotStripped) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := q.Store.Put(ctx, key, body, opts)
	info.Version = `"` + info.Version + `"`
	return info, err
}

// lister changes listings.
type lister struct {
	store.Store
	list func([]store.Info) []store.Info
}

func (l *lister) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		var found []store.Info
		for info, err := range l.Store.List(ctx, prefix, opts) {
			if err != nil {
				yield(info, err)
				return
			}
			found = append(found, info)
		}
		for _, info := range l.list(found) {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// staleList lists what there was at the listing before, from the given listing on.
func staleList(from int) func(store.Store) store.Store {
	return func(st store.Store) store.Store {
		var mu sync.Mutex
		var before []store.Info
		n := 0
		return &lister{st, func(now []store.Info) []store.Info {
			mu.Lock()
			defer mu.Unlock()
			shown := now
			if n++; n >= from {
				shown = before
			}
			before = now
			return shown
		}}
	}
}

// remembersDeleted lists also what was once listed and is gone.
func remembersDeleted(st store.Store) store.Store {
	var mu sync.Mutex
	ever := map[string]store.Info{}
	note := func(infos ...store.Info) []store.Info {
		mu.Lock()
		defer mu.Unlock()
		for _, info := range infos {
			ever[info.Key] = info
		}
		return slices.Collect(maps.Values(ever))
	}
	return &putter{&lister{st, func(now []store.Info) []store.Info { return note(now...) }}, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		info, err := st.Put(ctx, key, body, &store.PutOptions{If: cond})
		if err == nil {
			note(info)
		}
		return info, err
	}}
}

// getter replaces Get.
type getter struct {
	store.Store
	get func(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error)
}

func (g *getter) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	return g.get(ctx, key, opts)
}

// remembersMissing goes on saying that a key is missing once it has said so.
func remembersMissing(st store.Store) store.Store {
	var mu sync.Mutex
	missing := map[string]error{}
	return &getter{st, func(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := missing[key]; err != nil {
			return nil, err
		}
		obj, err := st.Get(ctx, key, opts)
		if errors.Is(err, store.ErrNotFound) {
			missing[key] = err
		}
		return obj, err
	}}
}

// ignoresRange always gives out the whole object.
func ignoresRange(st store.Store) store.Store {
	return &getter{st, func(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
		if opts != nil {
			opts = &store.GetOptions{IfNoneMatch: opts.IfNoneMatch}
		}
		return st.Get(ctx, key, opts)
	}}
}

// uploader replaces Upload.
type uploader struct {
	store.Store
	upload func(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error)
}

func (u *uploader) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	return u.upload(ctx, key, body, opts)
}

// losesTail forgets the last part of an upload.
func losesTail(st store.Store) store.Store {
	return &uploader{st, func(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
		return st.Upload(ctx, key, io.LimitReader(body, 1000), opts)
	}}
}

// unconditionalUpload ignores Create; that is allowed.
func unconditionalUpload(st store.Store) store.Store {
	return &uploader{st, func(ctx context.Context, key string, body io.Reader, _ *store.UploadOptions) (store.Info, error) {
		return st.Upload(ctx, key, body, nil)
	}}
}

// lateOverwrite lets a refused write take place a hundred requests later.
func lateOverwrite(st store.Store) store.Store {
	return faultstore.New(refusedAreKept(st), &faultstore.Options{Hook: func(op faultstore.Op) faultstore.Fault {
		if op.Kind == faultstore.Put {
			return faultstore.Fault{Late: &faultstore.Late{Ops: 100}}
		}
		return faultstore.Fault{}
	}})
}

// refusedAreKept carries a write out whose condition does not hold, when the
// same write comes a second time.
func refusedAreKept(st store.Store) store.Store {
	var mu sync.Mutex
	var seen []string
	return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
		mu.Lock()
		second := slices.Contains(seen, string(body))
		seen = append(seen, string(body))
		mu.Unlock()
		if second {
			cond = store.Condition{}
		}
		return st.Put(ctx, key, body, &store.PutOptions{If: cond})
	}}
}

// inRace changes the answers to racers only; their bodies say what they are.
func inRace(who string, put func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition, n int) (store.Info, error)) func(store.Store) store.Store {
	return func(st store.Store) store.Store {
		var mu sync.Mutex
		racers := map[string]int{}
		return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
			if _, swap := cond.Match(); !strings.Contains(string(body), "race of "+who) || who == "swappers" && !swap {
				return st.Put(ctx, key, body, &store.PutOptions{If: cond})
			}
			mu.Lock()
			defer mu.Unlock()
			racers[key]++
			return put(ctx, st, key, body, cond, racers[key])
		}}
	}
}

func noAnswer(key string) error { return &store.Error{Op: "put", Key: key, Status: 500} }

// allFail never answers a racer.
func allFail(who string) func(store.Store) store.Store {
	return inRace(who, func(_ context.Context, _ store.Store, key string, _ []byte, _ store.Condition, _ int) (store.Info, error) {
		return store.Info{}, noAnswer(key)
	})
}

// winnerFails takes one racer's write in hand, tells the others that they lost,
// and then fails.
func winnerFails(who string) func(store.Store) store.Store {
	return inRace(who, func(_ context.Context, _ store.Store, key string, _ []byte, _ store.Condition, n int) (store.Info, error) {
		if n == 1 {
			return store.Info{}, noAnswer(key)
		}
		return store.Info{}, precondition(key)
	})
}

// mostFail answers the winner only.
func mostFail(who string) func(store.Store) store.Store {
	return inRace(who, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition, n int) (store.Info, error) {
		if n > 1 {
			return store.Info{}, noAnswer(key)
		}
		return st.Put(ctx, key, body, &store.PutOptions{If: cond})
	})
}

// loserOverwrites tells one racer that it won and lets the next one write too,
// telling it that it lost.
func loserOverwrites(who string) func(store.Store) store.Store {
	return inRace(who, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition, n int) (store.Info, error) {
		if n == 2 {
			_, _ = st.Put(ctx, key, body, nil)
			return store.Info{}, precondition(key)
		}
		return st.Put(ctx, key, body, &store.PutOptions{If: cond})
	})
}

// seen changes what a Get gives out; n counts the reads of a key.
func seen(change func(obj *store.Object, body []byte, n int) []byte) func(store.Store) store.Store {
	return func(st store.Store) store.Store {
		var mu sync.Mutex
		reads := map[string]int{}
		return &getter{st, func(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
			obj, err := st.Get(ctx, key, opts)
			if err != nil {
				return nil, err
			}
			body, err := io.ReadAll(obj.Body)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			reads[key]++
			body = change(obj, body, reads[key])
			obj.Size = int64(len(body))
			obj.Body = io.NopCloser(strings.NewReader(string(body)))
			return obj, nil
		}}
	}
}

// firstSeen goes on showing what a key held when it was first read.
func firstSeen(st store.Store) store.Store {
	var mu sync.Mutex
	first := map[string]*store.Object{}
	bodies := map[string]string{}
	return &getter{st, func(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if first[key] == nil {
			obj, err := st.Get(ctx, key, opts)
			if err != nil {
				return nil, err
			}
			b, err := io.ReadAll(obj.Body)
			if err != nil {
				return nil, err
			}
			first[key], bodies[key] = obj, string(b)
		}
		return &store.Object{Info: first[key].Info, Body: io.NopCloser(strings.NewReader(bodies[key]))}, nil
	}}
}

// seesGhosts finds something under every key.
func seesGhosts(st store.Store) store.Store {
	return &getter{st, func(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
		obj, err := st.Get(ctx, key, opts)
		if errors.Is(err, store.ErrNotFound) {
			return &store.Object{Info: store.Info{Key: key, Version: "ghost"}, Body: io.NopCloser(strings.NewReader(""))}, nil
		}
		return obj, err
	}}
}

// keepsOne does not delete an object that is alone in its request.
type keepsOne struct{ store.Store }

func (k keepsOne) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 1 {
		return nil
	}
	return k.Store.Delete(ctx, keys...)
}

// unhurried takes one write of a name a second, as Google does, and answers 429 to
// whoever comes sooner.
type unhurried struct {
	store.Store
	clock clock.Clock
	mu    *sync.Mutex
	last  map[string]clock.Instant
	early *int
}

func (u unhurried) Traits() store.Traits { return store.Traits{MinRewrite: time.Second} }

func (u unhurried) throttle(key string, write func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, ok := u.last[key]; ok && u.clock.Now().Sub(last) < time.Second {
		*u.early++
		return &store.Error{Op: "put", Key: key, Status: 429}
	}
	u.last[key] = u.clock.Now()
	return write()
}

func (u unhurried) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (info store.Info, err error) {
	err = u.throttle(key, func() error { info, err = u.Store.Put(ctx, key, body, opts); return err })
	return info, err
}

func (u unhurried) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (info store.Info, err error) {
	err = u.throttle(key, func() error { info, err = u.Store.Upload(ctx, key, body, opts); return err })
	return info, err
}

func (u unhurried) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := u.throttle(key, func() error { return u.Store.Delete(ctx, key) }); err != nil {
			return err
		}
	}
	return nil
}

func isCreate(c store.Condition) bool { return c == store.IfAbsent() }

// inTwoSteps is a store in memory that locks a mutex, checks, and unlocks; and then locks it
// again, and writes.
func inTwoSteps(which func(store.Condition) bool, between func(body []byte)) func(store.Store) store.Store {
	return func(st store.Store) store.Store {
		var mu sync.Mutex
		return &putter{st, func(ctx context.Context, st store.Store, key string, body []byte, cond store.Condition) (store.Info, error) {
			if !which(cond) {
				return st.Put(ctx, key, body, &store.PutOptions{If: cond})
			}
			match, swap := cond.Match()
			mu.Lock()
			now, there, err := exists(ctx, st, key)
			mu.Unlock()
			if err != nil {
				return store.Info{}, err
			}
			if there != swap || now != match {
				return store.Info{}, precondition(key)
			}
			between(body)
			mu.Lock()
			defer mu.Unlock()
			return st.Put(ctx, key, body, nil)
		}}
	}
}

var copied atomic.Pointer[[]byte]

func copies(body []byte) {
	body = bytes.Clone(body)
	copied.Store(&body)
}

func sleeps([]byte) { time.Sleep(20 * time.Microsecond) }
