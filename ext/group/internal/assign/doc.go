// Package assign has the assignments of a group: which member owns which partition, and
// who may still work on it. It has their type, their bytes, and the planner that makes
// the next one from the newest. It does no I/O, has no clock and starts no goroutine.
//
// Spec/group.pml has the rules of pending entries and of tenure. How many partitions each
// member owns is policy, on which no promise of the model depends.
package assign
