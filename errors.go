package fencepost

import (
	"errors"
	"strings"
)

// ErrOptions: an [Options] field has a value that cannot work, or Run was called
// without work or without a store. The error names every such field and shows the arithmetic.
var ErrOptions = errors.New("fencepost: invalid options")

var errSuccessor = errors.New("fencepost: no successor has opened the log in time")

var errHook = errors.New("fencepost: a hook has ended its goroutine (runtime.Goexit); hooks must return")

var errDrain = errors.New("fencepost: the store did not settle all appends before the writer had to close")

// fieldError is what is wrong with a field of [Options]: the faults of another package's
// options, one to a line, each under the field's name. It is [ErrOptions].
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string {
	at := ErrOptions.Error() + ": " + e.field + ": "
	return at + strings.ReplaceAll(e.err.Error(), "\n", "\n"+at)
}

func (e *fieldError) Unwrap() []error { return []error{ErrOptions, e.err} }

// faults collects what is wrong with the fields of some options.
type faults []error

func (f *faults) add(field string, err error) {
	if err != nil {
		*f = append(*f, &fieldError{field, err})
	}
}
