package fencepost

import "errors"

// ErrOptions: an [Options] field has a value that cannot work, or Run was called
// without work. The error names every such field and shows the arithmetic.
var ErrOptions = errors.New("fencepost: invalid options")

var errDrain = errors.New("fencepost: the store did not settle all appends before the writer had to close")
