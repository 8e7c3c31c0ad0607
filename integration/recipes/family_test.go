//go:build recipes

package recipes

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// family returns a process and all that it has started, parents first.
func family(root int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		b, err := os.ReadFile(s)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(b), ") ") // the name may have anything in it
		fields := strings.Fields(after)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
		if len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// freeze stops a machine: a process and all that it has started. Thaw lets it go on.
func (r *process) freeze() (thaw func()) {
	r.t.Helper()
	all := family(r.cmd.Process.Pid)
	for _, pid := range all {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && err != syscall.ESRCH {
			r.t.Fatal(err)
		}
	}
	thawed := false
	thaw = func() {
		if thawed {
			return
		}
		thawed = true
		for _, pid := range all {
			syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may have been killed
		}
	}
	r.t.Cleanup(thaw)
	return thaw
}

// alive reports whether one of the processes runs, whose command line has a text.
func alive(pids []int, text string) error {
	for _, pid := range pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if line := strings.ReplaceAll(string(b), "\x00", " "); strings.Contains(line, text) {
			return fmt.Errorf("process %d still runs: %s", pid, line)
		}
	}
	return nil
}
