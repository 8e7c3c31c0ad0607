package servers

import "syscall"

// tie gives a child its own group, and has the kernel kill it when its parent
// dies, however that happens.
func tie(attr *syscall.SysProcAttr) {
	attr.Setpgid, attr.Pdeathsig = true, syscall.SIGKILL
}
