package sim

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"iter"
	"runtime"
	"slices"

	"github.com/fencepost/fencepost/store"
)

// request is one attempt at a store call, or a client that waits for its next step. It
// waits until the scheduler decides.
type request struct {
	node *node
	op   string // get, put, upload, list, delete or step
	key  string // or prefix
	keys []string
	body []byte
	cond store.Condition
	get  store.GetOptions

	from   uint64 // identifies the goroutine where two of a node may send the same request at once; see callers
	id     string // "w1 put data/1/3 #2", the same in every run
	tag    uint64 // of what it writes: a hash of its id and of what its node knew
	landed int    // how often it has taken effect
	split  string // of a listing: the name to start after
	page   int    // number of this page of the listing
	most   int    // names in a page; 0: all in one page
	// walked: a listing that is not atomic has read its first half, the higher names.
	walked   bool
	walkedAt int
	half     []store.Info
	since    int // step at which the scheduler first saw it
	held     int // step until which it is held back
	rep      reply
	gone     bool // no goroutine waits for the answer
	answered chan struct{}
	told     *reply // the answer; nil before
}

// answer gives the reply to the waiting goroutine.
func (r *request) answer(rep reply) {
	r.told = &rep
	r.answered <- struct{}{}
}

// step reports whether this is a client's step and not a request to the store.
func (r *request) step() bool { return r.op == opStep }

const opStep = "step"

func (r *request) reads() bool { return r.op == "get" || r.op == "list" }

// callers returns a hash of the call stack, to tell a node's goroutines apart. For
// example, a writer's goroutine for the manifest and its check of a refused slot read the
// same manifests. This is slow, so only two equal requests at once ask for it; see
// askTwins. The hash starts with the functions' names, so another build of the same code
// makes the same histories.
func callers() uint64 {
	var pcs [32]uintptr
	n := runtime.Callers(3, pcs[:])
	names, at := fnv.New64a(), uint64(0)
	for frames, more := runtime.CallersFrames(pcs[:n]), n > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		_, _ = io.WriteString(names, f.Function)
		at = at*31 + uint64(f.PC)
	}
	return names.Sum64()&^0xffff | at&0xffff
}

// short removes the leading zeros of the numbers in a key.
func short(key string) string { return string(appendShort(nil, key)) }

func appendShort(b []byte, key string) []byte {
	for i := 0; i < len(key); {
		end := i
		for end < len(key) && '0' <= key[end] && key[end] <= '9' {
			end++
		}
		if end-i == 20 {
			for ; i < end-1 && key[i] == '0'; i++ {
			}
		}
		end = max(end, i+1)
		b = append(b, key[i:end]...)
		i = end
	}
	return b
}

var (
	errCrashed = errors.New("sim: the node has crashed")
	errReset   = errors.New("sim: connection reset")
)

// do sends a request and waits for its answer.
func (n *node) do(ctx context.Context, r *request) reply {
	w := n.world
	if ctx.Err() != nil {
		return reply{err: given(ctx, r)}
	}
	r.node = n
	if n.direct {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.bucket.do(r, w.now)
	}
	r.answered = make(chan struct{}, 1)
	var id [96]byte
	name := append(append(append(append(id[:0], n.name...), ' '), r.op...), ' ')
	r.id = string(appendShort(name, mask(r.key)))
	for {
		w.mu.Lock()
		if n.dead {
			w.mu.Unlock()
			return crashed(r)
		}
		w.fresh = append(w.fresh, r)
		w.mu.Unlock()
		select {
		case <-r.answered:
			if r.told.err != errTwin { //nolint:errorlint // made here
				return *r.told
			}
			r.from = callers()
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			r.gone = true
			return reply{err: given(ctx, r)}
		}
	}
}

// errTwin makes the sender of a request repeat it with its callers hash.
var errTwin = errors.New("sim: two equal requests at once")

// gaveUpError is the error of a request whose context has ended. Its text is made only
// when needed.
type gaveUpError struct{ err, cause error }

func (g gaveUpError) Error() string   { return g.err.Error() + ": " + g.cause.Error() }
func (g gaveUpError) Unwrap() []error { return []error{g.err, g.cause} }

func given(ctx context.Context, r *request) error {
	return &store.Error{Op: r.op, Key: r.key, Err: gaveUpError{ctx.Err(), context.Cause(ctx)}}
}

// crashed is the reply to all requests of a dead node: an error that no code retries.
func crashed(r *request) reply {
	return reply{err: &store.Error{Op: r.op, Key: r.key, Kind: store.ErrDenied, Err: errCrashed}}
}

// client is a node's [store.Store].
type client struct{ *node }

var _ store.Store = client{}

func (c client) Traits() store.Traits { return store.Traits{Name: "sim://"} }

func (c client) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	r := &request{op: "get", key: key}
	if opts != nil {
		r.get = *opts
	}
	rep := c.do(ctx, r)
	if rep.err != nil && rep.info.Key == "" {
		return nil, rep.err
	}
	var body io.Reader = bytes.NewReader(rep.body)
	if rep.err != nil {
		body = io.MultiReader(body, broken{rep.err})
	}
	return &store.Object{Info: rep.info, Body: io.NopCloser(body)}, nil
}

// broken is the missing rest of a body.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func (c client) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	rep := c.do(ctx, &request{op: "put", key: key, body: bytes.Clone(body), cond: opts.Condition()})
	return rep.info, rep.err
}

func (c client) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	whole, err := io.ReadAll(body)
	if err != nil {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Err: err}
	}
	r := &request{op: "upload", key: key, body: whole}
	if opts != nil && opts.Create {
		r.cond = store.IfAbsent()
	}
	rep := c.do(ctx, r)
	return rep.info, rep.err
}

func (c client) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		after := ""
		if opts != nil {
			after = opts.StartAfter
		}
		for page := 0; ; page++ {
			rep := c.do(ctx, &request{op: "list", key: prefix, split: after, page: page, most: c.world.plan.Page})
			for _, info := range rep.infos {
				after = max(after, info.Key)
				if !yield(info, nil) {
					return
				}
			}
			if rep.err != nil {
				yield(store.Info{}, rep.err)
				return
			}
			if most := c.world.plan.Page; most == 0 || len(rep.infos) < most {
				return
			}
		}
	}
}

func (c client) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return c.do(ctx, &request{op: "delete", key: keys[0], keys: slices.Clone(keys)}).err
}
