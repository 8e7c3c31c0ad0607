package reader

import (
	"fmt"
	"time"
)

// Moment is a point in a log's history. The zero Moment is the end of the log, as
// it is when somebody looks.
type Moment struct {
	by     string // "", "version", "offset" or "time"
	number uint64
	time   time.Time
}

// AtVersion is what a version of the manifest, from 1 on, says: the records and edits
// before its floor. It needs a version that is kept: one above the prune mark, or one that
// somebody has pinned. In the latter case the snapshot lasts as long as that pin.
func AtVersion(version uint64) Moment { return Moment{by: "version", number: version} }

// AtOffset is behind the first offset records of the log, with all edits that come
// before the next one.
func AtOffset(offset uint64) Moment { return Moment{by: "offset", number: offset} }

// AtTime is before the first record whose Record.Time is after t. So it is as good
// as the clocks of the writers were, and within compacted records as exact as
// their blocks, of some 1 MiB. Edits count from when the records around them do; in
// a log of nothing but edits use versions.
func AtTime(t time.Time) Moment { return Moment{by: "time", time: t} }

func (m Moment) String() string {
	switch m.by {
	case "":
		return "the end of the log"
	case "time":
		return m.time.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("%s %d", m.by, m.number)
}
