package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// TestPolicyFiles: each role can do its work in both stores, and no more than its policy says.
func TestPolicyFiles(t *testing.T) {
	const lake = "lake/table"
	var made fence.ID // the log's
	log, second := memstore.New(nil), memstore.New(&memstore.Options{Name: "mem://lake"})
	as := func(role string) (a, b *policed) {
		p := filesPolicy(t, role, lake)
		if made != (fence.ID{}) { // the page says to name the log as soon as there is one
			for _, s := range p.Statement {
				for i := range s.Resource {
					s.Resource[i] = strings.Replace(s.Resource[i], strings.Repeat("?", 32), made.String(), 1)
				}
			}
		}
		return &policed{Store: log, identity: p}, &policed{Store: second, identity: p, prefix: lake}
	}
	ctx := t.Context()
	// Two leaderships, so that the files of the first are folded, and one of them is removed.
	var gone manifest.File
	for i := range 2 {
		st, files := as("writer")
		err := fencepost.Run(ctx, st, &fencepost.Options{Writer: &writer.Options{Files: files, Init: quickProbe}}, func(ctx context.Context, s *fencepost.Session) error {
			f, err := s.CreateFile(ctx, ".parquet", 0)
			if err != nil {
				return err
			}
			if _, err := f.Write([]byte("rows")); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			e := manifest.Edit{Add: []manifest.File{f.File()}}
			if i == 0 {
				gone = f.File()
			} else {
				e.Remove = []string{gone.Key}
			}
			return s.CommitFiles(ctx, e)
		})
		if err != nil || len(st.denied)+len(files.denied) > 0 {
			t.Fatalf("writer: %v; denied %q %q", err, st.denied, files.denied)
		}
		format, err := manifest.ReadFormat(ctx, log, nil)
		if err != nil {
			t.Fatal(err)
		}
		made = format.Log
	}
	for _, role := range []string{"writer", "compactor"} {
		_, files := as(role)
		for _, key := range []string{"00112233445566778899aabbccddeeff/00000000000000000001/x.parquet"} {
			if _, err := files.Put(ctx, key, nil, nil); !errors.Is(err, store.ErrDenied) {
				t.Errorf("the %s of one log writes a file of another: %v", role, err)
			}
			if err := files.Delete(ctx, key); !errors.Is(err, store.ErrDenied) {
				t.Errorf("the %s of one log deletes a file of another: %v", role, err)
			}
		}
	}
	st, files := as("reader")
	r, err := reader.Open(ctx, st, &reader.Options{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Snapshot(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for f, err := range s.Files(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		file, err := s.Open(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(file); string(body) != "rows" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Put(ctx, "x", nil, nil); err == nil {
		t.Error("a reader may write files")
	}
	// In the second store a reader's rights are enough for a backup, and a writer's to restore it.
	back := memstore.New(nil)
	st, files = as("reader")
	if _, err := backup.Make(ctx, st, back, &backup.Options{Files: files}); err != nil || len(st.denied)+len(files.denied) > 0 {
		t.Errorf("backup: %v; denied %q %q", err, st.denied, files.denied)
	}
	_, lake2 := as("writer")
	lake2.Store = memstore.New(&memstore.Options{Name: "mem://lake2"})
	if _, err := backup.Restore(ctx, back, memstore.New(nil), &backup.Options{Files: lake2, Probe: quickProbe.Probe}); err != nil || len(lake2.denied) > 0 {
		t.Errorf("restore: %v; denied %q", err, lake2.denied)
	}
	for range 3 {
		st, files := as("compactor")
		c, err := compactor.New(st, &compactor.Options{Files: files})
		if err == nil {
			_, err = c.Once(ctx)
		}
		if err != nil || len(st.denied)+len(files.denied) > 0 {
			t.Fatalf("compactor: %v; denied %q %q", err, st.denied, files.denied)
		}
	}
	if n, _ := second.Len(); n != 2 { // the mark, and the live file
		t.Errorf("%d objects in the second store", n)
	}
	if _, writer := as("writer"); writer.Delete(ctx, "_fencepost/00112233445566778899aabbccddeeff.json") == nil {
		t.Error("a writer may delete the mark of another log")
	}
	// The compactor deletes no mark, and nothing of the published table.
	for _, key := range []string{"_fencepost/00112233445566778899aabbccddeeff.json", "_delta_log/00000000000000000001.json", "part-0001.parquet"} {
		if err := files.Delete(ctx, key); err == nil {
			t.Errorf("a compactor may delete %s", key)
		}
	}
	if _, err := files.Upload(ctx, "x", strings.NewReader(""), &store.UploadOptions{}); err == nil {
		t.Error("a compactor may upload files")
	}
}

// filesPolicy is that of a role with files at a prefix of the same bucket.
func filesPolicy(t *testing.T, role, prefix string) *policy {
	p := policyFor(t, role, "files")
	for _, s := range p.Statement {
		for i, r := range s.Resource {
			r = strings.Replace(r, ":::lake/table/", ":::bucket/"+prefix+"/", 1)
			s.Resource[i] = strings.Replace(r, ":::lake", ":::bucket", 1)
		}
		for i, r := range s.Condition["StringLike"]["s3:prefix"] {
			s.Condition["StringLike"]["s3:prefix"][i] = strings.Replace(r, "table/", prefix+"/", 1)
		}
	}
	return p
}
