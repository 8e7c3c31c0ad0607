//go:build integration && unix && !linux

package integration

import "time"

// timeNamespaces need Linux.
func timeNamespaces() bool { return false }

func shiftBoot(time.Duration) []string { return nil }

// elapsed returns the time of day. It must not be set during the test.
func elapsed(time.Duration) int64 { return time.Now().UnixNano() }
