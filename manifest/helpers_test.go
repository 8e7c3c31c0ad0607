package manifest

import (
	"errors"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

var (
	testLog  = fence.ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	testTime = time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC)
)

func testFormat() Format {
	return Format{Version: document.Format, Log: testLog, Created: testTime.Truncate(time.Second), Limits: fence.DefaultLimits(), Grace: DefaultGrace}
}

// quick lets nobody wait for a store that is in memory.
var quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 100}

// quickProbe does each test once: what is tested here is who calls it.
var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}

func known(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat)
}
