//go:build integration && unix && !linux

package integration

import "time"

// timeNamespaces is for Linux.
func timeNamespaces() bool { return false }

func shiftBoot(time.Duration) []string { return nil }

// elapsed is the time of day, which nobody may set while the chaos lasts.
func elapsed(time.Duration) int64 { return time.Now().UnixNano() }
