package reader

import "fmt"

// Moment is a place in a log's history. The zero Moment is the end of the log at the
// time of the call.
type Moment struct {
	by     by
	number uint64
}

type by string

const (
	byVersion by = "version"
	byOffset  by = "offset"
)

// AtVersion is the floor of a version of the manifest: the records and edits that were
// folded in that version, counted from 1. The version must be above the prune mark, or
// pinned. If only a pin keeps it, the snapshot lasts as long as that pin.
func AtVersion(version uint64) Moment { return Moment{by: byVersion, number: version} }

// AtOffset is after the first offset records of the log, and after all edits before the
// next record. An offset that is folded already is possible as long as no edit after it
// is folded too. For a time of day, use the offset that [Reader.After] returns.
func AtOffset(offset uint64) Moment { return Moment{by: byOffset, number: offset} }

func (m Moment) String() string {
	if m.by == "" {
		return "the end of the log"
	}
	return fmt.Sprintf("%s %d", m.by, m.number)
}
