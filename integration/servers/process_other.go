//go:build unix && !linux

package servers

import "syscall"

// sysProcAttr gives a child its own group. Only Linux can tie its life to the
// parent's: elsewhere a killed test binary leaves its servers behind.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
