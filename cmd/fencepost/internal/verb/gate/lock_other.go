//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package gate

import (
	"errors"
	"os"
	"os/exec"
)

func lockFile(*os.File) (bool, error) {
	return false, errors.New("this system has no flock; use gate set")
}

func statusOf(e *exec.ExitError) int { return e.ExitCode() }
