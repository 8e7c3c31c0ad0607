//go:build !linux

package test

import "testing"

// OffDisk runs the tests of a package.
func OffDisk(m *testing.M) int { return m.Run() }
