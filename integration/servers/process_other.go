//go:build unix && !linux

package servers

import "syscall"

// tie gives a child its own group. Only Linux can tie its life to the parent's:
// elsewhere a killed test binary leaves its servers behind.
func tie(attr *syscall.SysProcAttr) { attr.Setpgid = true }
