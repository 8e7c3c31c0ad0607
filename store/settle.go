package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// This file is the only place in Fencepost that tries a request again, and the
// only one that decides what became of a conditional write.

// SettleOptions tune the retries of [Create], [Swap], [ReadAll] and [ListAll].
// The zero value works.
type SettleOptions struct {
	// Attempt bounds one request, default 30 s. The whole is bounded by ctx.
	Attempt time.Duration
	// Backoff is the longest pause after the first failure, default 20 ms; it
	// doubles with each failure up to MaxBackoff, default 2 s. The pause is drawn
	// evenly from the upper half.
	Backoff, MaxBackoff time.Duration
	// Reads is how often a read is tried before its error is returned, default
	// 8. Reads that settle a write go on until ctx ends.
	Reads int
	// Clock is the machine's by default.
	Clock clock.Clock
	// Random draws the pauses: a number in [0, 1), by default another one every
	// time. It must be safe for concurrent use.
	Random func() float64
}

// WriteOptions describe one write of [Create], [Swap] or [SwapClean]. Nil works like
// the zero value.
type WriteOptions struct {
	// Settle tunes the retries.
	Settle *SettleOptions
	// Identity is how many leading bytes of the body tell it from every other body that
	// is ever written under its key; 0 means all of them. Every body holds a random
	// nonce. A large one has it in its header, so that Create need not read megabytes
	// back.
	Identity int
	// CRC32C is the checksum of the body, if the caller knows it: see [PutOptions].
	CRC32C *uint32
	// Hedge lets [Create] send its request a second time when the first is late; nil
	// means never. See [Hedge]. Swaps are not hedged.
	Hedge *Hedge
}

func (o *SettleOptions) withDefaults() SettleOptions {
	var v SettleOptions
	if o != nil {
		v = *o
	}
	if v.Attempt <= 0 {
		v.Attempt = 30 * time.Second
	}
	if v.Backoff <= 0 {
		v.Backoff = 20 * time.Millisecond
	}
	if v.MaxBackoff <= 0 {
		v.MaxBackoff = 2 * time.Second
	}
	if v.Reads <= 0 {
		v.Reads = 8
	}
	v.Clock = clock.Or(v.Clock)
	if v.Random == nil {
		v.Random = rand.Float64
	}
	return v
}

var errAttemptTimeout = errors.New("store: no answer in time")

// attempt runs one request under its own time limit.
func (o *SettleOptions) attempt(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := clock.WithTimeout(ctx, o.Clock, o.Attempt, errAttemptTimeout)
	defer cancel()
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errAttemptTimeout) {
		return fmt.Errorf("%w: %w", errAttemptTimeout, err)
	}
	return err
}

// pause waits before try n+1, as long as the store asked for if it did.
func (o *SettleOptions) pause(ctx context.Context, n int, err error) error {
	d := o.Backoff << min(n, 16)
	if d <= 0 || d > o.MaxBackoff {
		d = o.MaxBackoff
	}
	d = d/2 + time.Duration(o.Random()*float64(d/2+1))
	if e := (*Error)(nil); errors.As(err, &e) && e.RetryAfter > d {
		d = min(e.RetryAfter, time.Minute)
	}
	return clock.Sleep(ctx, o.Clock, d)
}

// ConflictError says that a conditional write was refused, and what is there
// instead. It is [ErrPrecondition].
type ConflictError struct {
	// Found is the object now under the key; its Version is empty if there is
	// none (a [Swap] of a key that has been deleted).
	Found Info
	// Body is the found object's body, cut to WriteOptions.Identity bytes, or to
	// the length of one's own body if that is not set.
	Body []byte
}

func (e *ConflictError) Error() string {
	if e.Found.Version == "" {
		return fmt.Sprintf("store: put %q: condition not met (412): the object is gone", e.Found.Key)
	}
	return fmt.Sprintf("store: put %q: condition not met (412): another object is there", e.Found.Key)
}

// Is makes a ConflictError an [ErrPrecondition].
func (e *ConflictError) Is(target error) bool { return target == ErrPrecondition }

// UnknownError says that the outcome of a conditional write could not be told
// before ctx ended. It is [ErrUnknown]. The write may still be applied, at any
// time: the key must be settled with the same bytes before anything builds on
// it.
type UnknownError struct {
	Key      string
	Attempts int
	// Err is the last thing that went wrong; Cause is why no more was tried.
	Err, Cause error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("store: put %q: outcome unknown after %d attempts: %v (gave up: %v)", e.Key, e.Attempts, e.Err, e.Cause)
}

// Unwrap returns [ErrUnknown], the reason for giving up and the last error, but
// no refusal: whoever asks for [ErrPrecondition] must not find one in a write
// that may have been applied.
func (e *UnknownError) Unwrap() []error {
	errs := []error{ErrUnknown}
	for _, err := range []error{e.Cause, e.Err} {
		if err != nil && !errors.Is(err, ErrPrecondition) {
			errs = append(errs, err)
		}
	}
	return errs
}

// Create writes body under key unless something is there, and returns when the
// outcome is certain: nil, a [ConflictError], an error that turned the first
// attempt away ([OutcomeOf] tells Rejected), or, if ctx ended first, an
// [UnknownError]. Body must be unlike every other body ever written under key,
// within its first WriteOptions.Identity bytes; so it cannot be empty
// ([ErrInvalid]).
//
// It never tells "refused" from the store's answer alone. A 412 may be the echo
// of an attempt whose reply was lost — an earlier one of this loop, or one that
// something between here and the store sent twice — so it reads the key: own
// bytes mean applied, other bytes mean refused, and nothing there means that
// nothing is known yet: the same bytes are sent again, since the lost request
// may land later and must find its slot taken by its equal. A store that goes on
// contradicting itself (412, and nothing there) is given up as unknown.
func Create(ctx context.Context, st Store, key string, body []byte, opts *WriteOptions) (Info, error) {
	return settle(ctx, st, key, body, IfAbsent(), opts)
}

// Swap writes body under key if the object there has version old, and returns
// when the outcome is certain, like [Create]. Refused means that the object is
// gone, or has neither version old nor this body; in either case body may have
// been applied, and been deleted or replaced since. An empty old names no
// version ([ErrInvalid]).
func Swap(ctx context.Context, st Store, key string, body []byte, old Version, opts *WriteOptions) (Info, error) {
	if old == "" {
		return Info{}, &Error{Op: "put", Key: key, Kind: ErrInvalid, Hint: "a swap needs the version that it replaces"}
	}
	return settle(ctx, st, key, body, IfMatch(old), opts)
}

// settle writes, looks and writes again until the outcome is certain. A hedged
// attempt is two equal requests that are under way at once, and a look; put waits
// until it is certain what became of them, or for all, and tells what is known of
// them together, so to this loop it is one attempt that may have been applied.
func settle(ctx context.Context, st Store, key string, body []byte, cond Condition, opts *WriteOptions) (Info, error) {
	if len(body) == 0 {
		return Info{}, &Error{Op: "put", Key: key, Kind: ErrInvalid, Hint: "an empty body cannot be told from another's"}
	}
	var w WriteOptions
	if opts != nil {
		w = *opts
	}
	o := w.Settle.withDefaults()
	look := len(body)
	if w.Identity > 0 {
		look = w.Identity
	}
	to := &PutOptions{If: cond, CRC32C: w.CRC32C}
	own := body[:min(look, len(body))]
	old, swap := cond.Match()
	inFlight := false // an attempt of ours may have been, or may yet be, applied
	contradictions := 0
	sent := 0
	var last error
	for n := 0; ; n++ {
		put := func(ctx context.Context) (info Info, err error) {
			err = o.attempt(ctx, func(ctx context.Context) (err error) {
				info, err = st.Put(ctx, key, body, to)
				return err
			})
			return info, err
		}
		var info Info
		var err error
		requests := 1
		if n == 0 && !swap && w.Hedge != nil {
			var r reply
			r, requests = w.Hedge.put(ctx, o.Clock, hedged{
				send: func(ctx context.Context) reply {
					info, err := put(ctx)
					return reply{info: info, err: err}
				},
				look: func(ctx context.Context) reply {
					found, err := o.read(ctx, st, key, look)
					if err == nil && !found.is(body, own) {
						c := &ConflictError{Found: found.Info, Body: found.body}
						return reply{err: c, taken: c}
					}
					return reply{info: found.Info, err: err}
				},
			})
			if r.taken != nil {
				return Info{}, r.taken
			}
			info, err = r.info, r.err
		} else {
			info, err = put(ctx)
		}
		sent += requests
		outcome := OutcomeOf(err)
		if err != nil && ctx.Err() != nil {
			// guard:callers-reason. The error may wrap ctx's cause, and that may be what
			// the store answered to another request, such as 403: no answer to this
			// one, which may be on its way.
			outcome = Unknown
		}
		switch {
		case outcome == Applied:
			return info, nil
		case outcome == Rejected &&
			// guard:after-unknown. What the store turns away now says nothing of an earlier
			// attempt, which may be applied.
			!inFlight:
			return Info{}, err
		case outcome == Rejected:
			return Info{}, &UnknownError{Key: key, Attempts: sent, Err: last, Cause: err}
		case outcome == Unknown:
			inFlight = true
			if cause := o.pause(ctx, n, err); cause != nil {
				return Info{}, &UnknownError{Key: key, Attempts: sent, Err: err, Cause: cause}
			}
		}
		last = err
		// Refused or unknown: look.
		//
		// guard:resend. If nothing is there our request may still be on its way, and land
		// when all have forgotten it. So that is no refusal: the same bytes are sent again.
		//
		//mutant:replace errors.Is(err, ErrNotFound) && swap => errors.Is(err, ErrNotFound)
		found, err := o.read(ctx, st, key, look)
		switch {
		case err != nil && ctx.Err() != nil:
			// guard:callers-reason. The same for a look that was given up.
			return Info{}, &UnknownError{Key: key, Attempts: n + 1, Err: last, Cause: err}
		case errors.Is(err, ErrNotFound) && swap:
			// A swap cannot bring a deleted key back, and no key is created twice:
			// nothing of ours can be applied any more.
			return Info{}, &ConflictError{Found: Info{Key: key}}
		case errors.Is(err, ErrNotFound):
			inFlight = true
			if OutcomeOf(last) == Refused {
				if contradictions++; contradictions == maxContradictions {
					return Info{}, &UnknownError{Key: key, Attempts: sent, Err: last, Cause: errRefusedAbsent}
				}
			}
			if cause := o.pause(ctx, n, last); cause != nil {
				return Info{}, &UnknownError{Key: key, Attempts: sent, Err: last, Cause: cause}
			}
		case err != nil:
			// Also after a plain refusal: without a look it may be our own echo.
			return Info{}, &UnknownError{Key: key, Attempts: sent, Err: last, Cause: err}
		case found.is(body, own):
			// guard:own-nonce. Nobody else's body has our nonce: the refusal is the echo of
			// a request that was applied.
			return found.Info, nil
		case swap && found.Version == old:
			// Not applied yet: again. A store that goes on refusing the version
			// that it shows is broken (quoted against unquoted ETags, T14).
			if OutcomeOf(last) != Refused {
				continue
			}
			inFlight = true // the 412 may have been the echo of a copy that is just being applied
			if contradictions++; contradictions == maxContradictions {
				return Info{}, &UnknownError{Key: key, Attempts: sent, Err: last, Cause: errRefusedShown}
			}
			if cause := o.pause(ctx, n, last); cause != nil {
				return Info{}, &UnknownError{Key: key, Attempts: sent, Err: last, Cause: cause}
			}
		default:
			return Info{}, &ConflictError{Found: found.Info, Body: found.body}
		}
	}
}

// maxContradictions is how often a store may answer that a condition does not
// hold and then show that it does. Once is possible: a store may count a write
// that it is still working on.
const maxContradictions = 10

var (
	errRefusedShown  = errors.New("the store refuses the very version that it shows; its conditional writes cannot be used")
	errRefusedAbsent = errors.New("the store refuses to create a key that it says does not exist; its conditional writes cannot be used")
)

type foundObject struct {
	Info
	body []byte
}

// is tells whether it is a body that begins with own.
func (f *foundObject) is(body, own []byte) bool {
	return f.Size == int64(len(body)) && bytes.Equal(f.body, own)
}

// read looks at the leading bytes of an object until it gets an answer.
func (o *SettleOptions) read(ctx context.Context, st Store, key string, look int) (foundObject, error) {
	get := &GetOptions{Length: int64(look)}
	for n := 0; ; n++ {
		var f foundObject
		err := o.attempt(ctx, func(ctx context.Context) error {
			obj, err := st.Get(ctx, key, get)
			if err != nil {
				return err
			}
			defer obj.Body.Close()
			f.Info = obj.Info
			f.body, err = io.ReadAll(io.LimitReader(obj.Body, int64(look)))
			if want := min(int64(look), obj.Size); err == nil && int64(len(f.body)) < want {
				// A body cut short is not another's body.
				err = fmt.Errorf("%w: got %d of %d bytes", io.ErrUnexpectedEOF, len(f.body), want)
			}
			return err
		})
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, ErrRange) && get != nil:
			// An empty object has no first byte. It may have the version that a swap
			// is about to replace, so it is looked at all the same.
			get = nil
			continue
		case errors.Is(err, ErrNotFound) || Permanent(err):
			return f, err
		}
		if cause := o.pause(ctx, n, err); cause != nil {
			return f, fmt.Errorf("%w (%w)", cause, err)
		}
	}
}

// Retry runs f, a read, until it succeeds, fails for good, has been tried
// SettleOptions.Reads times or ctx ends. Answers that are no failures of the
// store (not found, not modified, range) are returned at once.
func Retry(ctx context.Context, opts *SettleOptions, f func(context.Context) error) error {
	o := opts.withDefaults()
	return o.retry(ctx, func() error { return o.attempt(ctx, f) })
}

func (o *SettleOptions) retry(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err != nil && ctx.Err() != nil {
			return givenUp(ctx, err)
		}
		if err == nil || answered(err) || n+1 >= o.Reads {
			return err
		}
		if o.pause(ctx, n, err) != nil {
			return givenUp(ctx, err)
		}
	}
}

// givenUp is the error of a read that ended because ctx did.
//
// guard:callers-reason. As in settle, ctx's cause may be what the store answered to
// another request: an errgroup ends all of them with what one was told. "Not there" would
// end a walk of the chain as if it had come to the tail.
//
//mutant:replace answered(cause) || answered(err) => false
func givenUp(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if answered(cause) || answered(err) {
		return fmt.Errorf("%w: %s (gave up: %s)", ctx.Err(), err.Error(), cause.Error())
	}
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (gave up: %w)", err, cause)
}

// answered tells whether a read's error is the store's answer, not a failure.
func answered(err error) bool {
	return Permanent(err) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotModified) ||
		errors.Is(err, ErrRange) || errors.Is(err, ErrTooLarge)
}

// ReadAll reads a whole object of at most limit bytes: see [Read].
func ReadAll(ctx context.Context, st Store, key string, limit int64, opts *SettleOptions) ([]byte, Info, error) {
	return Read(ctx, st, key, &ReadOptions{Limit: limit, Settle: opts})
}

// ReadOptions describe one [Read].
type ReadOptions struct {
	// Offset, Length and IfNoneMatch are those of [GetOptions].
	Offset, Length int64
	IfNoneMatch    Version
	// Limit is how many bytes the caller takes at most; 0 means Length.
	Limit int64
	// Append holds bytes that the result begins with. What is read goes after them into
	// the same array, if there is room for it and one byte more.
	Append []byte
	// Settle tunes the retries.
	Settle *SettleOptions
}

// Read reads an object or a part of it into memory, trying again as [Retry] does. What
// it returns has exactly as many bytes as the store announced. More than the limit are
// [ErrTooLarge], whatever the store announces; a Read without Limit and Length takes
// none.
func Read(ctx context.Context, st Store, key string, opts *ReadOptions) ([]byte, Info, error) {
	get := GetOptions{Offset: opts.Offset, Length: opts.Length, IfNoneMatch: opts.IfNoneMatch}
	dst, limit := opts.Append, cmp.Or(opts.Limit, opts.Length)
	var body []byte
	var info Info
	err := Retry(ctx, opts.Settle, func(ctx context.Context) error {
		obj, err := st.Get(ctx, key, &get)
		if err != nil {
			return err
		}
		defer obj.Body.Close()
		info = obj.Info
		want := obj.Size - get.Offset
		if get.Length > 0 {
			want = min(want, get.Length)
		}
		if want > limit {
			return &Error{Op: "get", Key: key, Kind: ErrTooLarge, Hint: fmt.Sprintf("it has %d bytes, the limit is %d", want, limit)}
		}
		want = max(want, 0)
		body, err = readClaimed(obj.Body, dst, want)
		n := int64(len(body) - len(dst))
		switch {
		case err != nil:
			return &Error{Op: "get", Key: key, Err: err}
		case n > want:
			return &Error{Op: "get", Key: key, Err: fmt.Errorf("got more than the %d bytes that were announced", want)}
		case n < want:
			return &Error{Op: "get", Key: key, Err: fmt.Errorf("%w: got %d of %d bytes", io.ErrUnexpectedEOF, n, want)}
		}
		return nil
	})
	if err != nil {
		return nil, info, err
	}
	return body, info, nil
}

const (
	// believed is how many bytes are allocated on the word of a store that they will come.
	believed = 8 << 20
	// growth is how many times what has arrived is allocated for the rest. Doubling would
	// hold a large object one and a half times over.
	growth = 16
)

// readClaimed appends a body that is said to have want bytes: want+1 of one that has more.
// A size is a claim, bytes are not: the buffer grows as they arrive, in few steps.
func readClaimed(r io.Reader, dst []byte, want int64) ([]byte, error) {
	all := int64(len(dst)) + want + 1 // one more, to see the end
	body := dst
	if int64(cap(dst)) < all {
		body = append(make([]byte, 0, min(all, max(believed, growth*int64(len(dst)))+1)), dst...)
	}
	for int64(len(body)) < all {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(all, growth*int64(cap(body)))), body...)
		}
		n, err := r.Read(body[len(body):min(int64(cap(body)), all)])
		body = body[:len(body)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

// ListAll lists like Store.List and begins again when the listing breaks off, or
// has not gone on for SettleOptions.Attempt. After that a key may come a second
// time: callers take the highest, delete, or keep a set, so that it does not
// matter.
func ListAll(ctx context.Context, st Store, prefix string, list *ListOptions, opts *SettleOptions) iter.Seq2[Info, error] {
	o := opts.withDefaults()
	return func(yield func(Info, error) bool) {
		stopped := false
		err := o.retry(ctx, func() (err error) {
			stopped, err = o.list(ctx, st, prefix, list, yield)
			return err
		})
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

// list makes one listing. The time that the caller takes for an entry does not
// count.
func (o *SettleOptions) list(ctx context.Context, st Store, prefix string, list *ListOptions, yield func(Info, error) bool) (stopped bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	watch := func() clock.Timer { return o.Clock.AfterFunc(o.Attempt, func() { cancel(errAttemptTimeout) }) }
	timer := watch()
	defer func() { timer.Stop() }()
	for info, err := range st.List(ctx, prefix, list) {
		timer.Stop()
		if err != nil {
			if errors.Is(context.Cause(ctx), errAttemptTimeout) {
				err = fmt.Errorf("%w: %w", errAttemptTimeout, err)
			}
			return false, err
		}
		if !yield(info, nil) {
			return true, nil
		}
		timer = watch()
	}
	return false, nil
}

// deleteBatch is how many keys go into one attempt of DeleteAll, as many as
// S3's DeleteObjects takes.
const deleteBatch = 1000

// DeleteAll deletes keys, trying again as [Retry] does.
func DeleteAll(ctx context.Context, st Store, keys []string, opts *SettleOptions) error {
	for batch := range slices.Chunk(keys, deleteBatch) {
		if err := Retry(ctx, opts, func(ctx context.Context) error { return st.Delete(ctx, batch...) }); err != nil {
			return err
		}
	}
	return nil
}
