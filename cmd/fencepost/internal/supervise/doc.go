// Package supervise runs a command for as long as a lease holds, and kills it and all that it
// has started before the lease ends.
//
// Two processes do that. The supervisor holds the lease and renews it; [Run] is its part. The
// watchdog is the parent of the command; [Watchdog] is all that it does. The supervisor tells
// the watchdog each new deadline. The watchdog confirms it, and only a confirmed deadline
// counts. So both always know when the command must be dead:
//
//   - If the supervisor is frozen or killed, the watchdog ends the command in time.
//   - If the watchdog is frozen or killed, the supervisor does. The kernel kills the command
//     itself together with its watchdog.
//   - If both are frozen, as when the machine is suspended, either ends the command as soon as
//     it wakes.
//
// Deadlines are in the time since the machine has booted, which counts suspends.
//
// To end the command, it and its process group get SIGTERM, and SIGCONT in case they are
// stopped. At the deadline SIGKILL goes to every process that descends from the command, in
// whatever group or session it is. The watchdog is a subreaper: the kernel makes it the parent
// of each descendant whose own parent has died. So nobody gets away by forking twice.
//
// A chain, where each process starts the next one and ends, is faster than a look at the table of
// processes. Two things end it, and Run returns only when nothing is left:
//
//   - Where this process may make a cgroup (version 2; as root, or where systemd delegates one), the
//     command runs in one, and the kernel kills all of it in one step.
//   - Everywhere: children are stopped and killed with their process groups as soon as they are seen,
//     hundreds of times in a row. A frozen watchdog is killed first, so that what it leaves are
//     children of the supervisor.
//
// With a cgroup there is a third process, the survivor. It kills what is there at the deadline, whether the
// others are frozen or dead. If the supervisor and its watchdogs are all dead, it does not wait so long.
//
// Some things it cannot do. It does not reach what others start on the command's behalf, such
// as a container or a unit of systemd. A process that waits in the kernel for a device dies
// only when that wait ends. Where there is no cgroup, nobody is left if the supervisor and the watchdog are both
// killed or frozen: a command whose watchdog was killed dies, and what it has started does not; one whose
// watchdog is frozen goes on.
//
// It needs Linux.
package supervise
