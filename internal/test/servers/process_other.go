//go:build unix && !linux

package servers

import "syscall"

// tie gives a child its own group. Only Linux can kill it with its parent. Elsewhere a
// killed test binary leaves its servers running.
func tie(attr *syscall.SysProcAttr) { attr.Setpgid = true }
