package delta

import "errors"

var (
	// ErrOptions: an option has a value that cannot work.
	ErrOptions = errors.New("delta: wrong options")
	// ErrForeign: somebody else has written to the Delta log.
	ErrForeign = errors.New("delta: the Delta log was written by another program")
	// ErrDamaged: the newest state of the Delta table cannot be read.
	ErrDamaged = errors.New("delta: the Delta log is damaged")
	// ErrSource: a source cannot be published as it is. The others are published.
	ErrSource = errors.New("delta: the source cannot be published")
	// ErrSchema: a file does not fit the table's schema, or has a column that Delta has not.
	ErrSchema = errors.New("delta: the schema does not fit")
	// ErrUnpublished: the source was taken out of the table for good.
	ErrUnpublished = errors.New("delta: the source is unpublished")
	// ErrNoTable: there is no Delta table.
	ErrNoTable = errors.New("delta: there is no Delta table")
)
