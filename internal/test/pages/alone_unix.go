//go:build unix

package pages

import (
	"os/exec"
	"syscall"
)

// alone runs a command in a process group of its own, and kills all of that at the end.
func alone(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	if err := c.Start(); err != nil {
		return err
	}
	err := c.Wait()
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	return err
}
