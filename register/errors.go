package register

import "errors"

var (
	// ErrOptions: the options, the token or the value cannot work.
	ErrOptions = errors.New("register: invalid options")
	// ErrLost: the object is gone, or an older state of it was brought back. No program of this
	// project does that. Open the register again with a greater token, after you know why.
	ErrLost = errors.New("register: the object was deleted or brought back")
)
