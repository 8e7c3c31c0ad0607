package kubelock

import "errors"

var (
	// ErrOptions: options that cannot work. The error names all that is wrong.
	ErrOptions = errors.New("kubelock: invalid options")
	// ErrNotHolder: the record is not this lock's, so it may neither free it nor give a token
	// for it.
	ErrNotHolder = errors.New("kubelock: not the holder")
	// ErrTermOver: others have led since this term began, or may have. The elector must end the
	// term before it can win again.
	ErrTermOver = errors.New("kubelock: the term is over")
)
