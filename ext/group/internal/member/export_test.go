package member

import "github.com/fencepost/fencepost/fence"

// Needless reports whether a pruner would delete an object after the grace period.
func (m *Machine) Needless(key string) bool {
	_, ok := m.needless(key)
	return ok
}

// AckKey is the key of an acknowledgement.
func AckKey(name fence.ID, n, i uint64) string { return ackKey(name, n, i) }
