package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// places are where the texts of an archive belong on a system.
var places = map[string]string{
	"man/man1/":                   "/usr/share/man/man1/",
	"completions/fencepost.bash":  "/usr/share/bash-completion/completions/fencepost",
	"completions/fencepost.zsh":   "/usr/share/zsh/site-functions/_fencepost",
	"completions/fencepost.fish":  "/usr/share/fish/vendor_completions.d/fencepost.fish",
	"LICENSE":                     "/usr/share/doc/fencepost/copyright",
	"README.md":                   "/usr/share/doc/fencepost/README.md",
	"CHANGELOG.md":                "/usr/share/doc/fencepost/CHANGELOG.md",
	"completions/fencepost.power": "",
}

// packages writes a deb and an rpm.
func (r *release) packages(p platform) error {
	content := func(source, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: source, Destination: to, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}}
	}
	contents := files.Contents{content(r.binaries[p], "/usr/bin/fencepost", 0o755)}
	for pattern, to := range map[string]string{
		"systemd/*.service": "/usr/lib/systemd/system/", "systemd/*.timer": "/usr/lib/systemd/system/",
		"prometheus/fencepost.rules.yml": "/usr/share/fencepost/", "grafana/fencepost.json": "/usr/share/fencepost/",
	} {
		found, err := filepath.Glob(filepath.Join(r.tree, "deploy", pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("there is no deploy/%s: %w", pattern, err)
		}
		for _, name := range found {
			contents = append(contents, content(name, to+filepath.Base(name), 0o644))
		}
	}
	for _, text := range slices.Sorted(maps.Keys(r.texts)) {
		for _, from := range slices.Sorted(maps.Keys(places)) {
			if to := places[from]; to != "" && strings.HasPrefix(text, from) {
				source := filepath.Join(r.work, "texts", text)
				if err := os.MkdirAll(filepath.Dir(source), 0o750); err != nil {
					return err
				}
				if err := os.WriteFile(source, r.texts[text], 0o600); err != nil {
					return err
				}
				contents = append(contents, content(source, to+strings.TrimPrefix(text, from), 0o644))
			}
		}
	}
	contents = append(contents, &files.Content{
		Destination: "/etc/fencepost", Type: files.TypeDir,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755 | os.ModeDir, MTime: r.time},
	})
	for _, format := range []string{"deb", "rpm"} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "fencepost", Arch: p.arch, Platform: p.os, Version: r.version, Section: "admin", Priority: "optional", MTime: r.time,
			Maintainer: "The Fencepost authors <maintainers@fencepost.invalid>", Description: "One writer at a time on an object store\nElects a leader with locks in the store, and refuses what a replaced one writes.",
			Homepage: "https://github.com/fencepost/fencepost", License: "Apache-2.0",
			Overridables: nfpm.Overridables{Contents: contents, RPM: nfpm.RPM{BuildHost: "localhost", Summary: "One writer at a time on an object store"}},
		})
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return err
		}
		if err := r.file(packager.ConventionalFileName(info), b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
