package store

import (
	"context"
	"io"
	"iter"
	"time"
)

// Store is what a driver provides: objects under keys, replaced whole, with
// conditions that hold atomically per key.
//
// Every method is safe for concurrent use. Every method makes one attempt:
// drivers never retry by themselves, because a retry hides the outcome of the
// attempt before it (see [Create] and [Swap] for the one loop that may).
// Errors are, or wrap, an [Error].
type Store interface {
	// Get opens the object under key. The caller closes the Body. With nil
	// options it reads the whole object.
	//
	// Errors: [ErrNotFound]; [ErrNotModified] if GetOptions.IfNoneMatch is the
	// object's version; [ErrRange] if a range begins at or past the end.
	Get(ctx context.Context, key string, opts *GetOptions) (*Object, error)

	// Put writes body under key, if the condition in opts holds. With nil options it
	// writes in any case. The driver keeps neither body nor opts after it returns.
	//
	// [OutcomeOf] tells the outcome from the error. [ErrPrecondition] means that the
	// store checked the condition and it does not hold. A match on a missing key is an
	// ErrPrecondition too.
	Put(ctx context.Context, key string, body []byte, opts *PutOptions) (Info, error)

	// Upload writes an object of unknown length, in bounded memory, and makes it
	// visible whole or not at all. Key must be a name that nobody else ever
	// writes (a UUID): a driver settles a lost reply by looking whether the key
	// exists. After an error that does not tell an [Outcome] the object may
	// still appear.
	//
	// An error of body's Read ends the upload with nothing visible.
	Upload(ctx context.Context, key string, body io.Reader, opts *UploadOptions) (Info, error)

	// List yields the objects whose key begins with prefix, in no particular
	// order, each at most once. It is complete: an object that was there before
	// List was called and is not deleted meanwhile is among them. An error ends
	// the sequence. Prefix is empty or ends in "/".
	List(ctx context.Context, prefix string, opts *ListOptions) iter.Seq2[Info, error]

	// Delete removes objects, without condition. A key that does not exist is
	// no error. On error some may be gone; all may be tried again.
	Delete(ctx context.Context, keys ...string) error

	// Traits tells what callers may want to adapt to.
	Traits() Traits
}

// Version names one state of one object. It is opaque: compare it for equality
// and hand it back, nothing else. Two writes of equal bodies may have equal
// versions (MD5 ETags), so whoever relies on a change of version puts a random
// nonce into the body. The empty Version means none.
type Version string

// Info is what a store tells of an object.
type Info struct {
	Key     string
	Version Version
	// Size of the whole object in bytes, also when only a range was read.
	Size int64
	// LastModified is the store's own clock when the object was written, in
	// whatever resolution the store keeps; zero if it does not say.
	LastModified time.Time
	// Date is the store's own clock when it answered; zero if it does not say.
	// Only the difference to a LastModified of the same response is meaningful.
	Date time.Time
}

// Age returns how old the object was when the store answered, by the store's clock
// alone. It reports false if the store did not tell both times.
//
// Stores round both times, many of them down to whole seconds. A caller that must not
// take an object for older or younger than it is allows for that.
func (i Info) Age() (age time.Duration, known bool) {
	if i.Date.IsZero() || i.LastModified.IsZero() {
		return 0, false
	}
	return i.Date.Sub(i.LastModified), true
}

// Object is an open object.
type Object struct {
	Info
	Body io.ReadCloser
}

// GetOptions narrows a Get.
type GetOptions struct {
	// Offset and Length select a range of bytes. Length 0 means to the end. A
	// range that reaches past the end is cut there.
	Offset, Length int64
	// IfNoneMatch makes Get answer [ErrNotModified] if the object still has this
	// version.
	IfNoneMatch Version
}

// PutOptions describe one Put. Nil works like the zero value.
type PutOptions struct {
	// If is the condition of the write. The zero Condition always holds.
	If Condition
	// CRC32C is the CRC-32C (Castagnoli) of the body, nil if the caller does not know
	// it. A driver that sends this checksum then need not compute it, and it also
	// covers the way to the driver. With a wrong one the store turns the request away,
	// or nothing happens if the driver does not use it.
	CRC32C *uint32
}

// Condition returns o.If, and the zero Condition if o is nil.
func (o *PutOptions) Condition() Condition {
	if o == nil {
		return Condition{}
	}
	return o.If
}

// UploadOptions describes a streamed upload. The zero value works.
type UploadOptions struct {
	// Create asks the store to refuse completion if the key exists. Not every
	// store honours it for large objects (see package probe); that is why keys
	// of uploads are unique.
	Create bool
	// SizeHint is the expected size in bytes, 0 if unknown. It only tunes the
	// size of parts.
	SizeHint int64
}

// ListOptions narrows a List.
type ListOptions struct {
	// StartAfter leaves out keys that are not greater. It is a hint: a driver
	// whose store cannot do it lists everything.
	StartAfter string
}

// Traits describe a store as far as callers adapt to it.
type Traits struct {
	// Name says what the store is, without credentials, for people:
	// "s3://bucket/prefix".
	Name string
	// MinRewrite is the least interval at which one key may be written again
	// (about 1 s on GCS); 0 means no such limit.
	MinRewrite time.Duration
	// MultiProcess tells whether other processes can open the same store.
	MultiProcess bool
}

// Condition says when a Put may take place. The zero value always holds.
type Condition struct {
	absent bool
	match  Version
}

// IfAbsent holds if nothing is stored under the key.
func IfAbsent() Condition { return Condition{absent: true} }

// IfMatch holds if the object under the key has version v. An empty v never
// holds.
func IfMatch(v Version) Condition {
	if v == "" {
		v = "\x00none"
	}
	return Condition{match: v}
}

// Absent reports whether c is [IfAbsent].
func (c Condition) Absent() bool { return c.absent }

// Match returns the version that c asks for, if it is an [IfMatch].
func (c Condition) Match() (Version, bool) { return c.match, c.match != "" }

func (c Condition) String() string {
	switch {
	case c.absent:
		return "if absent"
	case c.match != "":
		return "if match"
	}
	return "always"
}
