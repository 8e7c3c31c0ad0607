//go:build unix

package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Install returns the folder that holds the program. It installs the program first if it
// is missing, which can take minutes. Many processes may call it at once; one of them
// does the work.
func (k *Kind) Install(ctx context.Context) (dir string, err error) {
	root, err := cacheRoot()
	if err != nil {
		return "", fmt.Errorf("servers: no cache folder, set FENCEPOST_SERVERS: %w", err)
	}
	dir, err = install(ctx, root, k.Name+"-"+k.Version, func(ctx context.Context, dir string) error {
		return k.install(ctx, dir, k.Version)
	})
	if err != nil {
		return "", fmt.Errorf("servers: install %s %s: %w", k.Name, k.Version, err)
	}
	return dir, nil
}

// install fills root/name by build, once. The folder appears by a rename, so it is
// complete whenever it exists, also after a crash during the build.
func install(ctx context.Context, root, name string, build func(ctx context.Context, dir string) error) (string, error) {
	final := filepath.Join(root, name)
	if exists(final) {
		return final, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	held, err := lock(filepath.Join(root, name+".lock"))
	if err != nil {
		return "", err
	}
	defer held.Close()
	if exists(final) { // built by the previous holder of the lock
		return final, nil
	}
	// Remove what a killed build has left. It held the lock, so it no longer runs.
	leftover, err := filepath.Glob(filepath.Join(root, name+".tmp-*"))
	if err != nil {
		return "", err
	}
	for _, dir := range leftover {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	tmp, err := os.MkdirTemp(root, name+".tmp-*")
	if err != nil {
		return "", err
	}
	if err := build(ctx, tmp); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return final, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock takes an exclusive file lock. Closing the file releases it, and so does the end of
// the process. The file stays. If it were removed, two processes could hold the lock: one on the old file
// and one on the new.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// goInstall builds a command from the Go module proxy. It sets GOFLAGS and GOWORK,
// because the caller's values may not suit another module. Like .ci/run it leaves out what only debuggers read, and seldom collects garbage.
func goInstall(pkg string) func(ctx context.Context, dir, version string) error {
	return func(ctx context.Context, dir, version string) error {
		return run(ctx, dir, []string{"GOBIN=" + dir, "GOFLAGS=-mod=mod -gcflags=all=-dwarf=false", "GOGC=800", "GOWORK=off"}, "go", "install", pkg+"@"+version)
	}
}

// npmInstall installs the packages of the package.json and package-lock.json in folder of
// files, at exactly those versions. It runs no scripts of any package.
func npmInstall(files fs.FS, folder string) func(ctx context.Context, dir, version string) error {
	return func(ctx context.Context, dir, _ string) error {
		if _, err := exec.LookPath("node"); err != nil {
			return err
		}
		sub, err := fs.Sub(files, folder)
		if err != nil {
			return err
		}
		if err := os.CopyFS(dir, sub); err != nil {
			return err
		}
		return run(ctx, dir, []string{"NO_UPDATE_NOTIFIER=1"}, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	}
}

// run runs a command in dir. Its error contains the end of the command's output.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := spawn(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.signal(unix.SIGKILL)
		<-p.done
		return fmt.Errorf("%v: %w", cmd.Args, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, p.err, tail(out.Bytes()))
	}
	return nil
}

// tail returns the end of a program's output.
func tail(b []byte) []byte {
	const most = 4 << 10
	if len(b) > most {
		b = append([]byte("…"), b[len(b)-most:]...)
	}
	return bytes.TrimSpace(b)
}
