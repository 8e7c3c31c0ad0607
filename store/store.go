package store

import (
	"cmp"
	"context"
	"io"
	"iter"
	"time"
)

// Store is what a driver provides: objects under keys, each replaced as a whole, with
// conditions that hold atomically for each key. The package comment says how to write
// one.
//
// Every method is safe for concurrent use, and makes one attempt. Drivers never retry,
// because a retry hides the outcome of the attempt before it; [Create] and [Swap] do it
// with care. Errors are, or wrap, an [Error].
type Store interface {
	// Get opens the object under key. The caller closes the Body. With nil options it
	// reads the whole object.
	//
	// Errors: [ErrNotFound]; [ErrNotModified] if the object has the version
	// GetOptions.IfNoneMatch; [ErrRange] if a range begins at or past the end.
	Get(ctx context.Context, key string, opts *GetOptions) (*Object, error)

	// Put writes body under key if the condition in opts holds. With nil options it
	// writes in any case. The driver keeps neither body nor opts after it returns.
	//
	// [OutcomeOf] tells the outcome from the error. [ErrPrecondition] means that the
	// store checked the condition and it does not hold. IfMatch on a missing key is that
	// too.
	Put(ctx context.Context, key string, body []byte, opts *PutOptions) (Info, error)

	// Upload writes an object of unknown length in bounded memory, and makes it visible
	// whole or not at all. If a Read of body fails, nothing becomes visible.
	//
	// Key must be a name that nobody else ever writes, such as one with a UUID in it: a
	// driver may settle a lost answer by reading whether the key exists. After an error
	// whose outcome is unknown the object may still appear.
	Upload(ctx context.Context, key string, body io.Reader, opts *UploadOptions) (Info, error)

	// List yields the objects whose keys begin with prefix, each at most once, in no
	// particular order. Every object is among them that was there before the call and is
	// not deleted meanwhile. If a listing misses a key because it is deleted meanwhile, the
	// listing shows every key that sorts after it, was created before that delete, and is
	// not deleted meanwhile itself. An error ends the sequence. Prefix is empty or ends in
	// "/". The caller may use the store between two keys, also to delete.
	List(ctx context.Context, prefix string, opts *ListOptions) iter.Seq2[Info, error]

	// Delete deletes objects, without condition. A missing key is no error. After an
	// error some may be deleted; the call can be repeated.
	Delete(ctx context.Context, keys ...string) error

	// Traits tells what callers adapt to.
	Traits() Traits
}

// Version names one state of one object. It is opaque: compare versions for equality and
// hand them back, nothing else. The empty Version means none.
//
// Two writes of equal bodies may have equal versions, as MD5 ETags do. A caller that
// relies on a change of version puts a random nonce into the body.
type Version string

// Info is what a store tells of an object.
type Info struct {
	Key     string
	Version Version
	// Size of the whole object in bytes, also when only a range was read.
	Size int64
	// LastModified is when the object was written, by the store's own clock and in the
	// resolution that the store keeps. Zero if the store does not tell.
	LastModified time.Time
	// Date is when the store answered, by the store's own clock. Zero if it does not
	// tell. Only the difference to LastModified in the same answer means anything: see
	// [Info.Age].
	Date time.Time
}

// Age returns how old the object was when the store answered, by the store's clock
// alone. It reports false if the store did not tell both times.
//
// Stores round both times, many of them down to whole seconds. A caller that must not
// take an object for older or younger than it is adds a slack of its own.
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

// GetOptions describe one Get. Nil works like the zero value.
type GetOptions struct {
	// Offset and Length select a range of bytes. Length 0 means up to the end. A range
	// that reaches past the end is cut there.
	Offset, Length int64
	// IfNoneMatch makes Get return [ErrNotModified] if the object has this version.
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

// UploadOptions describe one Upload. Nil works like the zero value.
type UploadOptions struct {
	// Create asks the store to refuse the upload if the key exists. Not every store does
	// so for large objects (package probe tells), so the keys of uploads are unique.
	Create bool
	// SizeHint is the expected size in bytes, 0 if unknown. It only tunes the size of
	// parts.
	SizeHint int64
}

// ListOptions describe one List. Nil works like the zero value.
type ListOptions struct {
	// StartAfter leaves out the keys up to this one. It is a hint: a driver whose store
	// cannot do that lists everything.
	StartAfter string
}

// Traits are what callers adapt to.
type Traits struct {
	// Name is the store's name for people, without credentials: "s3://bucket/prefix".
	Name string
	// Endpoint is the address of its server; "" if it has none, or the one that everybody
	// knows.
	Endpoint string
	// MinRewrite is the shortest time between two writes of one key that the store takes:
	// about 1 s on GCS. 0 means no such limit.
	MinRewrite time.Duration
	// MultiProcess reports whether other processes can open the same store.
	MultiProcess bool
}

// Condition says when a Put may take place. The zero Condition always holds. Compare with
// ==: c == IfAbsent().
type Condition struct {
	absent bool
	match  Version
}

// IfAbsent holds if nothing is stored under the key.
func IfAbsent() Condition { return Condition{absent: true} }

// IfMatch holds if the object under the key has version v. An empty v never holds:
// [Condition.Match] returns "\x00none" for it, which is no version of any store.
func IfMatch(v Version) Condition {
	v = cmp.Or(v, "\x00none")
	return Condition{match: v}
}

// Match returns the version that the object must have, if c is an [IfMatch]. That version is
// never empty. For IfMatch("") it is "\x00none", so a driver that compares versions as text
// refuses it. A driver that sends versions must not send it.
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

// Where says to people where the store is: its name and, if that does not tell, its server.
func (t Traits) Where() string {
	if t.Endpoint == "" {
		return t.Name
	}
	return t.Name + " at " + t.Endpoint
}
