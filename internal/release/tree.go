package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// root is the path of the root module. The others are below it.
const root = "github.com/fencepost/fencepost"

// kept are modules that are not released: nobody imports them.
var kept = []string{"bench", "internal"}

// mod is a module of the tree.
type mod struct {
	dir  string // from the root of the tree, with slashes; "." is the root module
	file *modfile.File
	sums []string // its lines in the go.sum of others
}

func (m *mod) path() string { return m.file.Module.Mod.Path }

// tag is how the go command finds a version of a module.
func (m *mod) tag(version string) string { return strings.TrimPrefix(path.Join(m.dir, version), "./") }

// ours tells whether a module belongs to the project.
func ours(p string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// prepare changes the tree into that of a release and makes the proxy. It returns the modules
// in an order in which each stands after those that it requires.
func prepare(tree, proxy, version string) ([]*mod, error) {
	modules, err := find(tree)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(tree, "LICENSE"))
	if err != nil {
		return nil, err
	}
	done := map[string]*mod{}
	for _, m := range modules {
		if m.dir != "." {
			// The go command gives a module without a license that of the repository. So the
			// zip of the module has one in any case.
			if err := os.WriteFile(filepath.Join(tree, m.dir, "LICENSE"), license, 0o644); err != nil { //nolint:gosec // sources are for everybody
				return nil, err
			}
		}
		if err := m.pin(tree, version, done); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path(), err)
		}
		if err := m.publish(tree, proxy, version); err != nil {
			return nil, fmt.Errorf("%s: %w", m.path(), err)
		}
		done[m.path()] = m
	}
	return modules, nil
}

// find returns the modules of the tree that are released, in order.
func find(tree string) (modules []*mod, err error) {
	err = filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tree, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || slices.Contains(kept, rel)) {
			return filepath.SkipDir
		}
		if d.IsDir() || d.Name() != "go.mod" {
			return nil
		}
		b, err := os.ReadFile(p) //nolint:gosec // a file of the tree
		if err != nil {
			return err
		}
		f, err := modfile.Parse(rel, b, nil)
		if err != nil {
			return err
		}
		m := &mod{dir: path.Dir(rel), file: f}
		if want := path.Join(root, m.dir); m.path() != want {
			return fmt.Errorf("%s is module %s, not %s", rel, m.path(), want)
		}
		modules = append(modules, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sorted(modules)
}

// sorted puts modules after those that they require.
func sorted(modules []*mod) (order []*mod, _ error) {
	placed := map[string]bool{}
	for len(order) < len(modules) {
		n := len(order)
		for _, m := range modules {
			waits := slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool {
				return ours(r.Mod.Path) && !placed[r.Mod.Path]
			})
			if !placed[m.path()] && !waits {
				placed[m.path()], order = true, append(order, m)
			}
		}
		if len(order) == n {
			return nil, errors.New("modules require each other in a circle, or one that is not released")
		}
	}
	return order, nil
}

// pin makes a module require the others at the version, and notes their checksums.
func (m *mod) pin(tree, version string, done map[string]*mod) error {
	for _, r := range slices.Clone(m.file.Replace) {
		if !ours(r.Old.Path) {
			return fmt.Errorf("it replaces %s, and so cannot be installed by its version", r.Old.Path)
		}
		if err := m.file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	var sums []string
	for _, r := range m.file.Require {
		if !ours(r.Mod.Path) {
			continue
		}
		if err := m.file.AddRequire(r.Mod.Path, version); err != nil {
			return err
		}
		sums = append(sums, done[r.Mod.Path].sums...)
	}
	m.file.Cleanup()
	body, err := m.file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, m.dir, "go.mod"), body, 0o644); err != nil { //nolint:gosec // as above
		return err
	}
	if len(sums) == 0 {
		return nil
	}
	name := filepath.Join(tree, m.dir, "go.sum")
	old, err := os.ReadFile(name) //nolint:gosec // a file of the tree
	if err != nil {
		return err
	}
	lines := append(strings.Split(strings.TrimSpace(string(old)), "\n"), sums...)
	slices.Sort(lines)
	return os.WriteFile(name, []byte(strings.Join(slices.Compact(lines), "\n")+"\n"), 0o644) //nolint:gosec // as above
}

// publish puts a module into the proxy, and learns its checksums.
func (m *mod) publish(tree, proxy, version string) error {
	dir := filepath.Join(proxy, filepath.FromSlash(m.path()), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	put := func(name string, b []byte) error {
		return os.WriteFile(filepath.Join(dir, name), b, 0o644) //nolint:gosec // as above
	}
	gomod, err := os.ReadFile(filepath.Join(tree, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	v := module.Version{Path: m.path(), Version: version}
	if err := zip.CreateFromDir(&b, v, filepath.Join(tree, m.dir)); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q}`, version)
	for name, body := range map[string][]byte{version + ".zip": b.Bytes(), version + ".mod": gomod, version + ".info": []byte(info), "list": []byte(version + "\n")} {
		if err := put(name, body); err != nil {
			return err
		}
	}
	whole, err := dirhash.HashZip(filepath.Join(dir, version+".zip"), dirhash.Hash1)
	if err != nil {
		return err
	}
	only, err := dirhash.Hash1([]string{"go.mod"}, opener(gomod))
	if err != nil {
		return err
	}
	m.sums = []string{fmt.Sprintf("%s %s %s", v.Path, version, whole), fmt.Sprintf("%s %s/go.mod %s", v.Path, version, only)}
	return nil
}

// opener opens a file in memory, whatever its name.
func opener(b []byte) func(string) (io.ReadCloser, error) {
	return func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}
