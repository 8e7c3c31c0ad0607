package rewrite

import "errors"

var (
	// ErrOptions: an option is invalid. The text shows each fault.
	ErrOptions = errors.New("rewrite: invalid options")
	// ErrRecords: a rewrite has another number of records than the files that it was to
	// replace. Nothing was committed.
	ErrRecords = errors.New("rewrite: records do not add up")
)
