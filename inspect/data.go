package inspect

import (
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// CheckData says whether a whole [Data] object is damaged, as far as that shows without those before it. The limits are those
// of the log. The error is [fence.ErrCorrupt], or [fence.ErrFormat] if a newer version of this project has written the object.
func CheckData(body []byte, limits fence.Limits) error {
	_, err := frame.Decode(body, limits)
	return err
}
