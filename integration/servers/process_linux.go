package servers

import "syscall"

// sysProcAttr gives a child its own group, and has the kernel kill it when its
// parent dies, however that happens.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
