package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody runs the program in the container.
const nobody = "65532:65532"

// image writes an image for each processor of Linux, and an index of them, as a tar of an OCI
// layout. Such a tar can be loaded and copied without a registry.
func (r *release) image(platforms []platform) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		found = true
		img, err := r.oneImage(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	if !found {
		return nil
	}
	// The outer index has one entry, the index of the processors, under the name of the image.
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "fencepost:" + r.version,
		}},
	})
	dir := filepath.Join(r.work, "layout")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if _, err := layout.Write(dir, outer); err != nil {
		return err
	}
	var entries []entry
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			entries = append(entries, entry{name: name, mode: 0o755, dir: true})
			return nil
		}
		b, err := fs.ReadFile(os.DirFS(dir), name)
		entries = append(entries, entry{name: name, mode: 0o644, body: b})
		return err
	})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := r.tar(&b, entries); err != nil {
		return err
	}
	return r.file("fencepost_"+r.version+"_image.tar", b.Bytes())
}

// oneImage is an image with nothing but the program, the certificates of authorities, and a folder
// for temporary files.
func (r *release) oneImage(p platform) (v1.Image, error) {
	program, err := os.ReadFile(r.binaries[p])
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	err = r.tar(&body, []entry{
		{name: "etc", mode: 0o755, dir: true}, {name: "etc/ssl", mode: 0o755, dir: true}, {name: "etc/ssl/certs", mode: 0o755, dir: true},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: roots()},
		{name: "fencepost", mode: 0o755, body: program},
		{name: "licenses", mode: 0o755, dir: true}, {name: "licenses/LICENSE", mode: 0o644, body: r.texts["LICENSE"]},
		{name: "tmp", mode: 0o1777, dir: true},
	})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "fencepost " + r.version}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: v1.Time{Time: r.time}, RootFS: must(img.ConfigFile()).RootFS, History: must(img.ConfigFile()).History,
		Config: v1.Config{
			Entrypoint: []string{"/fencepost"}, User: nobody, WorkingDir: "/",
			Env: []string{"PATH=/", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			Labels: map[string]string{
				"org.opencontainers.image.title": "fencepost", "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.source": "https://github.com/fencepost/fencepost",
			},
		},
	})
}

// must is for values that are in memory.
func must(c *v1.ConfigFile, err error) *v1.ConfigFile {
	if err != nil {
		panic(err)
	}
	return c
}

// roots are the authorities that Mozilla trusts without restriction, at the version in go.mod.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}
