//go:build !linux

package supervise

import "context"

// Now is the present moment.
func Now() Moment { return 0 }

// Watchdog needs Linux.
func Watchdog([]string) error { return ErrUnsupported }

// Run needs Linux.
func Run(context.Context, *Command) (Status, error) { return Status{}, ErrUnsupported }
