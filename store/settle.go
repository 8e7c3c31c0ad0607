package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
)

// This file is the only place in Fencepost that sends a write again. What to do after
// an answer is decided in decide.go.

// Create writes body under key unless an object is there, and returns when the outcome
// is certain.
//
// The error is nil if the write is applied, a [ConflictError] if another object is
// there, and [Rejected] by [OutcomeOf] if the store turned the first request away. If
// ctx ends before the outcome is known, the error is [ErrUnknown]: the write may be
// applied at any time after, until Create has settled the key with the same bytes. A
// store that keeps answering 412 while it shows no object ends in ErrUnknown too.
//
// No two bodies that are ever written under key may begin with the same bytes, as many
// as WriteOptions.Identity says: put a random nonce there. So body cannot be empty
// ([ErrInvalid]).
//
// Without trouble Create costs one request. After a 412 or a lost answer it reads the
// key. Own bytes mean applied, other bytes mean refused. If there is nothing, nothing is
// known: Create sends the same bytes again, because the lost request may land later and
// must then find its equal.
func Create(ctx context.Context, st Store, key string, body []byte, opts *WriteOptions) (Info, error) {
	return settled(opts)(settle(ctx, st, key, body, IfAbsent(), opts))
}

// Swap writes body under key if the object there has version old, and returns when the
// outcome is certain, with the errors of [Create].
//
// A [ConflictError] means that the object is gone, or has neither version old nor this
// body. In either case body may have been applied, and been replaced or deleted since.
// An empty old is [ErrInvalid].
func Swap(ctx context.Context, st Store, key string, body []byte, old Version, opts *WriteOptions) (Info, error) {
	if old == "" {
		return Info{}, &Error{Op: "put", Key: key, Kind: ErrInvalid, Hint: "a swap needs the version that it replaces"}
	}
	return settled(opts)(settle(ctx, st, key, body, IfMatch(old), opts))
}

// settled tells WriteOptions.Clean, and passes on what is returned.
func settled(opts *WriteOptions) func(info Info, clean bool, err error) (Info, error) {
	return func(info Info, clean bool, err error) (Info, error) {
		if opts != nil && opts.Clean != nil {
			*opts.Clean = clean
		}
		return info, err
	}
}

// write is one call of Create or Swap.
type write struct {
	settings
	st    Store
	key   string
	body  []byte
	put   PutOptions
	old   Version // that a swap replaces
	read  int     // how many bytes of the object tell whose it is
	hedge *Hedge
	// overtaken says when to hedge early.
	overtaken <-chan struct{}

	sending, reading patience
}

func newWrite(st Store, key string, body []byte, cond Condition, opts *WriteOptions) (*write, error) {
	if len(body) == 0 {
		return nil, &Error{Op: "put", Key: key, Kind: ErrInvalid, Hint: "an empty body cannot be told from another empty one; put a nonce into it"}
	}
	o := *cmp.Or(opts, &WriteOptions{})
	s, err := o.Settle.settings()
	if err = cmp.Or(err, o.Hedge.validate()); err != nil {
		return nil, err
	}
	w := &write{settings: s, st: st, key: key, body: body, put: PutOptions{If: cond, CRC32C: o.CRC32C}, read: len(body)}
	if o.Identity > 0 {
		w.read = o.Identity
	}
	w.sending.size, w.reading.size = int64(len(body)), int64(w.read)
	if old, swap := cond.Match(); swap {
		w.old = old
	} else {
		w.hedge, w.overtaken = o.Hedge, o.Overtaken
	}
	return w, nil
}

// settle sends a write, reads the key and sends the write again, until the outcome is
// certain. Clean reports that the first request was the only one, and was applied.
func settle(ctx context.Context, st Store, key string, body []byte, cond Condition, opts *WriteOptions) (info Info, clean bool, err error) {
	w, err := newWrite(st, key, body, cond, opts)
	if err != nil {
		return Info{}, false, err
	}
	p := progress{swap: w.old != ""}
	sent := 0
	var last error // why the outcome of the requests so far is not known
	unknown := func(cause error) (Info, bool, error) {
		return Info{}, false, &unknownError{key: key, attempts: sent, err: last, cause: cause}
	}
	for n := 0; ; n++ {
		r, requests := w.send(ctx, n == 0)
		sent += requests
		if r.outcome != Rejected {
			last = r.err
		}
		found, failure := r.found, r.err
		var next step
		p, next = decide(p, r.outcome, found.finding)
		if next.action == check {
			if next.pause {
				if cause := w.pause(ctx, n, r.err); cause != nil {
					return unknown(cause)
				}
			}
			found, failure = w.check(ctx)
			p, next = decide(p, r.outcome, found.finding)
		}
		switch next.action {
		case accept:
			if found.finding == own {
				return found.Info, false, nil
			}
			return r.info, sent == 1, nil
		case refuse:
			return Info{}, false, &ConflictError{Found: found.Info, Body: found.body}
		case reject:
			return Info{}, false, r.err
		case giveUp:
			return unknown(cmp.Or(next.cause, failure))
		case check, resend:
		}
		if next.pause {
			if cause := w.pause(ctx, n, last); cause != nil {
				return unknown(cause)
			}
		}
	}
}

// reply is what became of one request, or of a request and its hedge together.
type reply struct {
	info    Info
	err     error
	outcome Outcome
	// found is what a hedge has found under the key.
	found object
}

// send makes one request, or two that are hedged.
func (w *write) send(ctx context.Context, first bool) (r reply, requests int) {
	if first && w.hedge != nil {
		r, requests = w.hedge.put(ctx, w)
	} else {
		r, requests = w.request(ctx), 1
	}
	// guard:callers-reason. An error that comes after the caller of a write has given up is not the
	// store's answer to this write.
	if r.err != nil && ctx.Err() != nil {
		r.outcome = Unknown
	}
	return r, requests
}

// request makes one attempt.
func (w *write) request(ctx context.Context) (r reply) {
	r.err = w.attempt(ctx, &w.sending, func(ctx context.Context) (err error) {
		r.info, err = w.st.Put(ctx, w.key, w.body, &w.put)
		return err
	})
	r.outcome = OutcomeOf(r.err)
	return r
}

// object is what a read of the key has found, with the leading bytes of the body.
type object struct {
	Info
	body []byte
	finding
}

// check reads the key until the store answers, and classifies what is there. There is
// an error if that is not known.
func (w *write) check(ctx context.Context) (object, error) {
	get := &GetOptions{Length: int64(w.read)}
	for n := 0; ; n++ {
		found, err := w.peek(ctx, get)
		switch {
		case err == nil:
			found.finding = w.classify(found)
			return found, nil
		case ctx.Err() != nil:
			// guard:callers-look. If the caller of a swap gives up while a read is to show whether it
			// was applied, an error of this read is not the store's answer.
			return object{finding: unreadable}, err
		case errors.Is(err, ErrRange) && get != nil:
			// An empty object has no first byte. It may have the version that a swap is
			// to replace, so it is read all the same.
			get = nil
			continue
		case errors.Is(err, ErrNotFound):
			return object{Info: Info{Key: w.key}, finding: absent}, nil
		case Permanent(err):
			return object{finding: unreadable}, err
		}
		if cause := w.pause(ctx, n, err); cause != nil {
			return object{finding: unreadable}, fmt.Errorf("%w (%w)", cause, err)
		}
	}
}

// classify tells whose object was found.
func (w *write) classify(found object) finding {
	switch {
	case found.Size == int64(len(w.body)) && bytes.Equal(found.body, w.body[:min(w.read, len(w.body))]):
		return own
	case w.old != "" && found.Version == w.old:
		return unchanged
	}
	return foreign
}

// peek reads the leading bytes of the object once.
func (w *write) peek(ctx context.Context, get *GetOptions) (found object, err error) {
	err = w.attempt(ctx, &w.reading, func(ctx context.Context) error {
		obj, err := w.st.Get(ctx, w.key, get)
		if err != nil {
			return err
		}
		defer obj.Body.Close()
		found.Info = obj.Info
		found.body, err = io.ReadAll(io.LimitReader(obj.Body, int64(w.read)))
		if want := min(int64(w.read), obj.Size); err == nil && int64(len(found.body)) < want {
			// A body that was cut short is not another's.
			err = fmt.Errorf("%w: got %d of %d bytes", io.ErrUnexpectedEOF, len(found.body), want)
		}
		return err
	})
	return found, err
}
