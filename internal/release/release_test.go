package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// checkout copies what git knows of the tree, as it is now.
func checkout(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "tree")
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join(top, name)) //nolint:gosec // a file of the tree
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o750)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestInstall installs the command line by its version, from a proxy that is made of this
// tree and from the module cache, without a network. First the cache gets what all modules need.
func TestInstall(t *testing.T) {
	tree, proxy, bin := checkout(t), filepath.Join(t.TempDir(), "proxy"), t.TempDir()
	// No other run has this version in the module cache.
	version := fmt.Sprintf("v0.0.0-test.%d.%d", os.Getpid(), time.Now().UnixNano())
	modules, err := prepare(tree, proxy, version)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		fill := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...")
		fill.Dir = filepath.Join("..", "..", m.dir)
		if out, err := fill.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", m.path(), err, out)
		}
	}
	cache := goEnv(t, "GOMODCACHE")
	t.Cleanup(func() {
		for _, m := range modules {
			_ = os.RemoveAll(filepath.Join(cache, filepath.FromSlash(m.path())+"@"+version))
			left, _ := filepath.Glob(filepath.Join(cache, "cache", "download", filepath.FromSlash(m.path()), "@v", version+".*"))
			for _, name := range left {
				_ = os.Remove(name)
			}
		}
	})
	env := append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+cache+"/cache/download", "GOSUMDB=off", "GOFLAGS="+goEnv(t, "GOFLAGS")+" -modcacherw", "GOWORK=off",
		"GOTOOLCHAIN=local", "GOBIN="+bin)
	install := exec.CommandContext(t.Context(), "go", "install", root+"/cmd/fencepost@"+version)
	install.Env, install.Dir = env, t.TempDir()
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "fencepost"), "--version").Output()
	if err != nil || !strings.Contains(string(out), version) {
		t.Errorf("%v: %s", err, out)
	}

	// A clone of the release builds each module by itself, with the checksums that it has.
	for _, m := range modules {
		list := exec.CommandContext(t.Context(), "go", "list", "-mod=readonly", "-deps", "-json=Module", "./...")
		list.Env, list.Dir = env, filepath.Join(tree, m.dir)
		out, err := list.Output()
		if err != nil {
			t.Errorf("%s: %v", m.path(), err)
			continue
		}
		d := json.NewDecoder(strings.NewReader(string(out)))
		for d.More() {
			var p struct {
				Module *struct{ Path, Version string }
			}
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			if p.Module != nil && ours(p.Module.Path) && p.Module.Path != m.path() && p.Module.Version != version {
				t.Errorf("%s uses %s at %q", m.path(), p.Module.Path, p.Module.Version)
			}
		}
	}
	if paths := slices.Collect(func(yield func(string) bool) {
		for _, m := range modules {
			if !yield(m.tag("v1.2.3")) {
				return
			}
		}
	}); !slices.Contains(paths, "v1.2.3") || !slices.Contains(paths, "cmd/fencepost/v1.2.3") || slices.Contains(paths, "bench/v1.2.3") {
		t.Errorf("the tags are %q", paths)
	}
}

// TestForeignReplace: a module that replaces somebody else's cannot be installed by its
// version, so it is not released.
func TestForeignReplace(t *testing.T) {
	tree := t.TempDir()
	for name, body := range map[string]string{
		"LICENSE": "free", "go.mod": "module " + root + "\n", "a/go.mod": "module " + root + "/a\nreplace example.org/x => ../x\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := prepare(tree, t.TempDir(), "v0.1.0"); err == nil || !strings.Contains(err.Error(), "it replaces example.org/x") {
		t.Error(err)
	}
}
