package main

import (
	"syscall"
	"testing"
)

// liveOf returns the workers of a job that run.
func liveOf(j *job) (pids map[int]bool) {
	pids = map[int]bool{}
	for _, tr := range traces(j.t, j.dir) {
		if alive(tr.pid) && tr.kill > 0 {
			pids[tr.pid] = true
		}
	}
	return pids
}

// TestExecGroup: a command runs for each partition, a process that dies is replaced, and one whose
// watchdog dies loses that partition's command only.
func TestExecGroup(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	const validity = 2 * testValidity // a session outlives a stall of the machine
	a := startJob(t, log, validity, "--group --partitions 3", "setsid deaf")
	a.works(6)
	before := liveOf(a)
	var first, watchdog int
	for _, tr := range traces(t, a.dir) {
		if parent := parentOf(tr.pid); alive(tr.pid) && syscall.Kill(tr.pid, 0) == nil && isWatchdog(parent) {
			if group, _ := syscall.Getpgid(tr.pid); group == tr.pid {
				first, watchdog = tr.pid, parent
			}
		}
	}
	_ = syscall.Kill(watchdog, syscall.SIGKILL)
	eventually(t, "the command whose watchdog died is dead, and another runs", func() bool { return !alive(first) && len(liveOf(a)) >= 6 })
	survivors := 0
	for pid := range before {
		if alive(pid) {
			survivors++
		}
	}
	if survivors != 4 {
		t.Errorf("of 6 processes %d have survived; the other partitions' 4 should have", survivors)
	}
	a.signal(syscall.SIGKILL)
	b := startJob(t, log, validity, "--group", "")
	last := a.dies()
	b.works(3)
	for _, tr := range traces(t, b.dir) {
		if tr.first <= last {
			t.Errorf("a command of the next process began at %.3f, and the last one wrote until %.3f", tr.first, last)
		}
	}
	b.signal(syscall.SIGTERM)
	if got := b.status(); got != 143 {
		t.Errorf("status %d: %s", got, b.err)
	}
	b.dies()
}

// TestExecGroupMoves: when another process joins, partitions move, and on SIGTERM all do.
func TestExecGroupMoves(t *testing.T) {
	t.Parallel()
	const validity = 2 * testValidity // a session outlives a stall of the machine
	log := fileURL(t)
	a := startJob(t, log, validity, "--partitions 4", "") // which implies --group
	a.works(4)
	b := startJob(t, log, validity, "--group", "")
	b.works(2)
	eventually(t, "they share", func() bool { return len(liveOf(a)) == 2 && len(liveOf(b)) == 2 })
	a.signal(syscall.SIGTERM)
	if got := a.status(); got != 143 {
		t.Errorf("status %d: %s", got, a.err)
	}
	a.dies()
	eventually(t, "b has all", func() bool { return len(liveOf(b)) == 4 })
}

func TestExecGroupUsage(t *testing.T) {
	for _, args := range [][]string{{"--partitions", "3", "-n"}, {"--partitions", "-1"}, {"--group", "--base", "3"}, {"--group", "-n"}, {"--group", "--wait", "1s"}} {
		if r := run(t, "", append(append([]string{"exec"}, args...), memURL(t), "--", "true")...); r.status != 64 {
			t.Errorf("%q: status %d, %s", args, r.status, r.err)
		}
	}
	if got := exitStatus(t, command(t, "exec", "--group", fileURL(t), "--", "true").Run()); got != 66 {
		t.Errorf("no group: status %d", got)
	}
}
