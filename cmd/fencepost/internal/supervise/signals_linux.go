package supervise

import (
	"os/signal"
	"syscall"
)

// ignoreTTOU calls f, which sets the terminal's group from the background.
func ignoreTTOU(f func()) {
	was := signal.Ignored(syscall.SIGTTOU)
	signal.Ignore(syscall.SIGTTOU)
	f()
	if !was {
		signal.Reset(syscall.SIGTTOU)
	}
}
