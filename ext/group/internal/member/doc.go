// Package member is the state machine of one member of a group: an event and an instant
// go in; requests to send, and partitions to start and stop, come out. It does no I/O, starts no
// goroutines, and gets clock readings and random numbers from its caller. The same events
// at the same instants give the same output, so testdata can script any interleaving.
//
// Package group is its driver. It carries out each [Job], each in a goroutine of its own,
// and reports the outcome as an [Event]. Jobs of different kinds are in flight at once: a
// slow listing delays no heartbeat.
//
// The parts of the machine: beat.go keeps the member alive and ends it, look.go finds the newest
// assignment, hold.go stops and starts partitions, watch.go finds dead members, plan.go makes
// the next assignment, trouble.go knows which partitions fail, and prune.go deletes what nobody needs. Spec/group.pml,
// spec/member.pml and spec/grouplive.pml are their models.
package member
