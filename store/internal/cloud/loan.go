package cloud

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Loan is a body that can be taken back: an SDK or net/http may read a body after the answer has
// come or the context has ended, when the memory is the caller's again.
type Loan struct {
	mu sync.Mutex
	r  *bytes.Reader // nil when it was taken back
}

var _ io.ReadSeekCloser = (*Loan)(nil)

var errTakenBack = errors.New("the request has ended, and its body was taken back")

// Lend returns a reader of body.
func Lend(body []byte) *Loan { return &Loan{r: bytes.NewReader(body)} }

// TakeBack waits for a Read that has begun, and makes later ones fail.
//
// guard:body-taken-back. Put lends the body to the SDK, and takes it back before it returns: it waits
// for a read that has begun, and each later read fails.
//
//mutant:replace l.r = nil => _ = l.r
func (l *Loan) TakeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r = nil
}

// Read implements [io.Reader].
func (l *Loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, errTakenBack
	}
	return l.r.Read(p)
}

// Seek implements [io.Seeker].
func (l *Loan) Seek(offset int64, whence int) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, errTakenBack
	}
	return l.r.Seek(offset, whence)
}

// Close implements [io.Closer].
func (*Loan) Close() error { return nil }
