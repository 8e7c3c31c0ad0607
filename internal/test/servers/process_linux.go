package servers

import "syscall"

// tie gives a child its own group. It makes the kernel kill the child when its parent
// dies, in whatever way.
func tie(attr *syscall.SysProcAttr) {
	attr.Setpgid, attr.Pdeathsig = true, syscall.SIGKILL
}
