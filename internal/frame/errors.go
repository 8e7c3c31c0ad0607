package frame

import (
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", fence.ErrCorrupt, fmt.Sprintf(format, args...))
}

func future(format string, args ...any) error {
	return fmt.Errorf("%w: %s; upgrade this program", fence.ErrFormat, fmt.Sprintf(format, args...))
}
