package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/blakesmith/ar"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/sassoftware/go-rpmutils"
)

const (
	version = "v0.0.0-test"
	module  = "github.com/fencepost/fencepost"
)

// TestRelease builds the program for this machine, packs it twice, and opens each file that was
// made.
func TestRelease(t *testing.T) {
	own := platform{runtime.GOOS, runtime.GOARCH}
	if own.os != "linux" {
		t.Fatal("packages and images are for Linux; run this test there")
	}
	tree, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{tree: tree, version: version, time: time.Unix(1_700_000_000, 0).UTC(), work: t.TempDir(), plain: true, binaries: map[platform]string{}, texts: map[string][]byte{}}
	if err := r.buildAll(t.Context(), []platform{own}); err != nil {
		t.Fatal(err)
	}
	// The other platforms differ only in what the compiler makes. A stand-in is enough for those.
	arm, windows := platform{"linux", other(own.arch)}, platform{"windows", own.arch}
	standIn := filepath.Join(r.work, "stand-in")
	if err := os.WriteFile(standIn, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.binaries[arm], r.binaries[windows] = standIn, standIn
	made := make([]map[string][]byte, 2)
	for i := range made {
		r.out = filepath.Join(t.TempDir(), "dist")
		for _, err := range []error{r.empty(), r.packOne(own), r.archive(windows), r.image([]platform{own, arm})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		made[i] = slurp(t, r.out)
	}
	for name, b := range made[0] {
		if !bytes.Equal(b, made[1][name]) {
			t.Errorf("%s differs when it is made again", name)
		}
	}
	program, err := os.ReadFile(r.binaries[own])
	if err != nil {
		t.Fatal(err)
	}
	c := &check{T: t, own: own, files: made[0], program: program}
	t.Run("archives", func(t *testing.T) { c.with(t).archives() })
	t.Run("deb", func(t *testing.T) { c.with(t).deb() })
	t.Run("rpm", func(t *testing.T) { c.with(t).rpm() })
	t.Run("bill", func(t *testing.T) { c.with(t).bill() })
	t.Run("image", func(t *testing.T) { c.with(t).image() })
}

func other(arch string) string {
	if arch == "amd64" {
		return "arm64"
	}
	return "amd64"
}

func slurp(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// check looks at the files of a release.
type check struct {
	*testing.T
	own     platform
	files   map[string][]byte
	program []byte
}

func (c *check) with(t *testing.T) *check {
	return &check{T: t, own: c.own, files: c.files, program: c.program}
}

// file returns a file of the release.
func (c *check) file(name string) []byte {
	c.Helper()
	b, ok := c.files[name]
	if !ok {
		c.Fatalf("there is no %s, but %q", name, slices.Sorted(maps.Keys(c.files)))
	}
	return b
}

// untar returns the files of a tar by name, and wants each to belong to root and to be of the
// time of the release.
func (c *check) untar(r io.Reader) map[string]*entry {
	c.Helper()
	all := map[string]*entry{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			c.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1_700_000_000 {
			c.Errorf("%s is of %d:%d, %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		b, err := io.ReadAll(t)
		if err != nil {
			c.Fatal(err)
		}
		all[strings.TrimPrefix(h.Name, ".")] = &entry{name: h.Name, mode: h.Mode, body: b, dir: h.Typeflag == tar.TypeDir}
	}
}

func (c *check) gunzip(b []byte) io.Reader {
	c.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		c.Fatal(err)
	}
	return z
}

func (c *check) archives() {
	name := "fencepost_" + version + "_linux_" + c.own.arch
	all := c.untar(c.gunzip(c.file(name + ".tar.gz")))
	if e := all[name+"/fencepost"]; e == nil || e.mode != 0o755 || !bytes.Equal(e.body, c.program) {
		c.Errorf("the archive has no program, but %q", slices.Sorted(maps.Keys(all)))
	}
	for _, want := range []string{"LICENSE", "README.md", "man/man1/fencepost-exec.1", "completions/fencepost.bash", "completions/fencepost.powershell"} {
		if e := all[name+"/"+want]; e == nil || len(e.body) == 0 || e.mode != 0o644 {
			c.Errorf("the archive has no %s", want)
		}
	}
	name = "fencepost_" + version + "_windows_" + c.own.arch
	b := c.file(name + ".zip")
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		c.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range z.File {
		names[f.Name] = true
	}
	if !names[name+"/fencepost.exe"] || !names[name+"/LICENSE"] {
		c.Errorf("the zip has %v", names)
	}
}

// installed are files that both kinds of packages have.
var installed = []string{
	"/usr/bin/fencepost", "/usr/lib/systemd/system/fencepost-exec@.service", "/usr/lib/systemd/system/fencepost-compact@.service",
	"/usr/lib/systemd/system/fencepost-exporter.service", "/usr/lib/systemd/system/fencepost-serve.service",
	"/usr/lib/systemd/system/fencepost-publish@.service", "/usr/lib/systemd/system/fencepost-backup@.service",
	"/usr/lib/systemd/system/fencepost-backup@.timer", "/usr/lib/systemd/system/fencepost-verify@.service",
	"/usr/lib/systemd/system/fencepost-verify@.timer", "/usr/share/fencepost/fencepost.rules.yml", "/usr/share/fencepost/fencepost.json",
	"/usr/share/man/man1/fencepost-exec.1", "/usr/share/doc/fencepost/copyright",
	"/usr/share/bash-completion/completions/fencepost", "/usr/share/zsh/site-functions/_fencepost",
}

func (c *check) deb() {
	parts := map[string][]byte{}
	for a := ar.NewReader(bytes.NewReader(c.file("fencepost_0.0.0~test_" + c.own.arch + ".deb"))); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.Fatal(err)
		}
		if parts[strings.TrimSuffix(h.Name, "/")], err = io.ReadAll(a); err != nil {
			c.Fatal(err)
		}
	}
	if string(parts["debian-binary"]) != "2.0\n" {
		c.Errorf("debian-binary is %q", parts["debian-binary"])
	}
	control := c.untar(c.gunzip(parts["control.tar.gz"]))["/control"]
	if control == nil {
		c.Fatal("no control file")
	}
	for _, want := range []string{"Package: fencepost\n", "Version: 0.0.0~test\n", "Architecture: " + c.own.arch + "\n", "Description: One writer"} {
		if !strings.Contains(string(control.body), want) {
			c.Errorf("the control file has no %q:\n%s", want, control.body)
		}
	}
	data := c.untar(c.gunzip(parts["data.tar.gz"]))
	for _, name := range installed {
		if e := data[name]; e == nil || len(e.body) == 0 {
			c.Errorf("the package has no %s, but %q", name, slices.Sorted(maps.Keys(data)))
		}
	}
	if e := data["/usr/bin/fencepost"]; e != nil && (e.mode&0o777 != 0o755 || !bytes.Equal(e.body, c.program)) {
		c.Errorf("the program has the mode %o", e.mode)
	}
}

func (c *check) rpm() {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[c.own.arch]
	p, err := rpmutils.ReadRpm(bytes.NewReader(c.file("fencepost-0.0.0~test-1." + arch + ".rpm")))
	if err != nil {
		c.Fatal(err)
	}
	nevra, err := p.Header.GetNEVRA()
	if err != nil || nevra.Name != "fencepost" || nevra.Version != "0.0.0~test" || nevra.Arch != arch {
		c.Errorf("%+v, %v", nevra, err)
	}
	payload, err := p.PayloadReaderExtended()
	if err != nil {
		c.Fatal(err)
	}
	sizes := map[string]int64{}
	for {
		f, err := payload.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.Fatal(err)
		}
		if f.UserName() != "root" {
			c.Errorf("%s belongs to %s", f.Name(), f.UserName())
		}
		sizes[f.Name()] = f.Size()
	}
	for _, name := range installed {
		if sizes[name] == 0 {
			c.Errorf("the package has no %s, but %v", name, sizes)
		}
	}
	if sizes["/usr/bin/fencepost"] != int64(len(c.program)) {
		c.Error("the package has another program")
	}
}

func (c *check) bill() {
	var bom cdx.BOM
	b := c.file("fencepost_" + version + "_linux_" + c.own.arch + ".cdx.json")
	if err := cdx.NewBOMDecoder(bytes.NewReader(b), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		c.Fatal(err)
	}
	if m := bom.Metadata.Component; m.Version != version || m.Name != "github.com/fencepost/fencepost/cmd/fencepost" {
		c.Errorf("%+v", m)
	}
	versions := map[string]string{}
	for _, part := range *bom.Components {
		versions[part.Name] = part.Version
	}
	for _, name := range []string{"std", "github.com/klauspost/compress", "github.com/aws/aws-sdk-go-v2"} {
		if versions[name] == "" {
			c.Errorf("%s is not listed", name)
		}
	}
	if versions["github.com/fencepost/fencepost"] != version {
		c.Errorf("the library has version %q", versions["github.com/fencepost/fencepost"])
	}
}

func (c *check) image() {
	dir := c.TempDir()
	for name, e := range c.untar(bytes.NewReader(c.file("fencepost_" + version + "_image.tar"))) {
		if e.dir {
			continue
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, e.body, 0o600)); err != nil {
			c.Fatal(err)
		}
	}
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		c.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		c.Error(err)
	}
	list, err := outer.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version {
		c.Fatalf("%+v, %v", list, err)
	}
	inner, err := outer.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		c.Fatal(err)
	}
	if list, err = inner.IndexManifest(); err != nil || len(list.Manifests) != 2 {
		c.Fatalf("%+v, %v", list, err)
	}
	seen := map[string]bool{}
	for _, d := range list.Manifests {
		seen[d.Platform.String()] = true
		img, err := inner.Image(d.Digest)
		if err != nil {
			c.Fatal(err)
		}
		c.oneImage(img, *d.Platform)
	}
	if !seen["linux/amd64"] || !seen["linux/arm64"] {
		c.Errorf("the index has %v", seen)
	}
}

func (c *check) oneImage(img v1.Image, p v1.Platform) {
	config, err := img.ConfigFile()
	if err != nil {
		c.Fatal(err)
	}
	if config.OS != p.OS || config.Architecture != p.Architecture || config.Config.User != nobody || !slices.Equal(config.Config.Entrypoint, []string{"/fencepost"}) {
		c.Errorf("the image for %v has %+v", p, config)
	}
	all := c.untar(mutate.Extract(img))
	if got, want := slices.Sorted(maps.Keys(all)), []string{"etc", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt", "fencepost", "licenses", "licenses/LICENSE", "tmp"}; !slices.Equal(got, want) {
		c.Fatalf("the image has %q, want %q", got, want)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(all["etc/ssl/certs/ca-certificates.crt"].body) {
		c.Error("the image has no certificates")
	}
	if n := strings.Count(string(all["etc/ssl/certs/ca-certificates.crt"].body), "BEGIN CERTIFICATE"); n < 50 {
		c.Errorf("the image has only %d certificates", n)
	}
	if all["tmp"].mode != 0o1777 || all["fencepost"].mode != 0o755 {
		c.Errorf("modes %o and %o", all["tmp"].mode, all["fencepost"].mode)
	}
	if p.Architecture != c.own.arch {
		return
	}
	program := filepath.Join(c.TempDir(), "fencepost")
	if err := os.WriteFile(program, all["fencepost"].body, 0o700); err != nil { //nolint:gosec // it is run
		c.Fatal(err)
	}
	out, err := exec.CommandContext(c.Context(), program, "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "fencepost "+version+" ") {
		c.Errorf("it prints %q: %v", out, err)
	}
}

// TestReproducible builds a small program as programs of a release are built, in two folders. The
// bytes must be the same, and must not name the folder. The program asks the compiler for a path, and
// a module of the tree does too.
func TestReproducible(t *testing.T) {
	files := map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26.0\n",
		"lib.go": "package fencepost\n\nimport \"runtime\"\n\nfunc Where() string { _, f, _, _ := runtime.Caller(0); return f }\n",
		"cmd/fencepost/go.mod": "module " + module + "/cmd/fencepost\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\n" +
			"replace " + module + " => ../..\n",
		"cmd/fencepost/main.go": "package main\n\nimport (\n\t\"runtime\"\n\n\t\"" + module + "\"\n)\n\nvar release string\n\n" +
			"func main() { _, f, _, _ := runtime.Caller(0); println(release, f, fencepost.Where()) }\n",
	}
	sums := map[[sha256.Size]byte]bool{}
	for _, name := range []string{"one", "another/folder"} {
		tree := filepath.Join(t.TempDir(), filepath.FromSlash(name))
		for file, text := range files {
			to := filepath.Join(tree, filepath.FromSlash(file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o750), os.WriteFile(to, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		r := &release{tree: tree, version: version, work: t.TempDir()}
		binary, err := r.build(t.Context(), platform{runtime.GOOS, runtime.GOARCH})
		if err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(program, []byte(tree)) {
			t.Errorf("the program has the path %s", tree)
		}
		out, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), version+" ") {
			t.Errorf("it prints %q: %v", out, err)
		}
		sums[sha256.Sum256(program)] = true
	}
	if len(sums) != 1 {
		t.Error("the same program has other bytes in another folder")
	}
}
