//go:build !linux

package test

import "testing"

func limitMemory(*testing.T, uint64) {} // what is allocated is counted all the same
