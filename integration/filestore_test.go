//go:build integration

package integration

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// TestFilesApartOnRealServers: two logs share a second store for their files, one of which is
// uploaded in parts. One log drops a file and an orphan, and its compactor deletes just these.
func TestFilesApartOnRealServers(t *testing.T) {
	onEach(t, servers.Conforming, func(t *testing.T, s *servers.Server) {
		second := open(t, s.URL("lake/table"))
		var kept []string
		for i, at := range []string{"logs/a", "logs/b"} {
			st := open(t, s.URL(at))
			var w *writer.Writer
			add := func(size int) manifest.File {
				f, err := w.CreateFile(t.Context(), ".parquet", 0)
				if err == nil {
					_, err = io.Copy(f, io.LimitReader(zeros{}, int64(size)))
				}
				if err == nil {
					err = f.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				return f.File()
			}
			commit := func(e manifest.Edit) {
				if err := w.CommitFiles(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			lead := func(epoch fence.Epoch) {
				var err error
				if w, err = writer.Open(t.Context(), st, fence.NewToken(epoch), &writer.Options{Files: second, Init: &manifest.InitOptions{Grace: manifest.MinGrace}}); err != nil {
					t.Fatal(err)
				}
			}
			lead(1)
			gone, large, orphan := add(100), add(20<<20), add(200)
			commit(manifest.Edit{Add: []manifest.File{gone, large}})
			commit(manifest.Edit{Remove: []string{gone.Key}})
			if err := w.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			lead(2) // ends the epoch of the orphan
			if err := w.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			f := w.Format()
			kept = append(kept, f.FileName(large.Key), "_fencepost/"+f.Log.String()+".json")
			if i == 1 {
				kept = append(kept, f.FileName(gone.Key), f.FileName(orphan.Key)) // nobody compacts it
			}
		}
		st := open(t, s.URL("logs/a"))
		left := func() (all []string) {
			for info, err := range store.ListAll(t.Context(), second, "", nil, nil) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, info.Key)
			}
			slices.Sort(all)
			return all
		}
		slices.Sort(kept)
		// The grace period, of a second, has to pass by the server's clock.
		c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), Files: second})
		if err != nil {
			t.Fatal(err)
		}
		for range 120 {
			if _, err := c.Once(t.Context()); err != nil {
				t.Fatal(err)
			}
			if slices.Equal(left(), kept) {
				break
			}
			time.Sleep(250 * time.Millisecond)
		}
		if got := left(); !slices.Equal(got, kept) {
			t.Errorf("left are %q, want %q", got, kept)
		}
		r, err := reader.Open(t.Context(), st, &reader.Options{Files: second})
		if err != nil {
			t.Fatal(err)
		}
		snap, err := r.Snapshot(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Close(t.Context())
		for f, err := range snap.Files(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			file, err := snap.Open(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, file); n != 20<<20 || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
		}
		for _, at := range []string{"logs/a", "logs/b"} {
			report, err := verify.Run(t.Context(), open(t, s.URL(at)), &verify.Options{Files: second})
			if err != nil || !report.OK() || report.Files != 1 {
				t.Errorf("%s: %v, %v", at, report.Problems, err)
			}
		}
		if _, err := writer.Open(t.Context(), st, fence.NewToken(9), nil); err == nil || !strings.Contains(err.Error(), "lake/table; open that one") {
			t.Error(err)
		}
	})
}

// zeros is a file without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
