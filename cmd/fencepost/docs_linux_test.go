package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/pages"
	"github.com/fencepost/fencepost/internal/test/s3stub"
)

var pageTime = flag.Duration("page-time", 2*time.Minute, "how long a page of the documents may take; one that waits for ever fails")

// TestDocuments runs the commands on each page of docs/ and in the README, as a reader types
// them. This command stands for fencepost, and an S3 endpoint in this process for all buckets.
// Package pages says how a page marks what cannot run. A page may take a minute.
func TestDocuments(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asCommand, self)
	if err := os.WriteFile(filepath.Join(bin, "fencepost"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	files := []string{"README.md"}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(p string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, p); err == nil && filepath.Ext(p) == ".md" {
			files = append(files, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		all, faults := pages.Parse(file, string(text))
		for _, err := range faults {
			t.Error(err)
		}
		n := 0
		for _, b := range all {
			if b.Runs() {
				n++
			}
		}
		if n == 0 {
			continue
		}
		ran++
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			srv := s3stub.Start(&s3stub.Options{Buckets: []string{"bucket", "backups"}})
			t.Cleanup(srv.Close)
			_, endpoint, _ := strings.Cut(srv.StoreURL(), "endpoint=")
			endpoint, _, _ = strings.Cut(endpoint, "&")
			home := t.TempDir()
			place := pages.Place{
				Dir: t.TempDir(), Root: root,
				Env: []string{
					"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + home, "GOPATH=" + goEnv(t, "GOPATH"), "GOCACHE=" + goEnv(t, "GOCACHE"), "GOFLAGS=" + goEnv(t, "GOFLAGS"),
					"AWS_ENDPOINT_URL=" + endpoint, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b",
				},
				Replace: map[string]string{"http://127.0.0.1:9000": endpoint, "/path/to/the/clone": root},
			}
			ctx, cancel := context.WithTimeout(t.Context(), *pageTime)
			defer cancel()
			if err := place.Run(ctx, all); err != nil {
				t.Error(err)
			}
		})
	}
	if ran < 5 {
		t.Errorf("only %d pages have commands that run", ran)
	}
}

// goEnv returns what the go command says of one of its variables. The home directory of a page
// is another one.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
