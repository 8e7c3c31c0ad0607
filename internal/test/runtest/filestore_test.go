package runtest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// shared is a store for the files of several logs.
func shared() *faultstore.Store {
	mem := memstore.New(&memstore.Options{Clock: clock.Go(), Name: "mem://lake"})
	return faultstore.New(mem, &faultstore.Options{Clock: clock.Go()})
}

// names are the keys in a store.
func names(t testing.TB, st store.Store) (all []string) {
	t.Helper()
	for info, err := range st.List(context.Background(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Key)
	}
	return all
}

// put uploads a file.
func put(ctx context.Context, w *writer.Writer) (manifest.File, error) {
	f, err := w.CreateFile(ctx, ".parquet", 0)
	if err != nil {
		return manifest.File{}, err
	}
	defer f.Abort()
	if _, err := f.Write([]byte("rows")); err != nil {
		return manifest.File{}, err
	}
	err = f.Close()
	return f.File(), err
}

var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1, Clock: clock.Go()}

// TestRunFilesApart: Run makes a log whose files are in a second store, and its compactor
// deletes there what an edit has removed.
func TestRunFilesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &runtest.World{Log: logtest.On(t, logtest.Format(), nil)}
		second := shared()
		o := runtest.Options("a")
		o.Writer.Files, o.Writer.Init = second, &manifest.InitOptions{Grace: -1, Probe: quickProbe}
		o.Compactor = &compactor.Options{MinObjects: 1, Interval: time.Second}
		var kept manifest.File
		n := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
			gone, err := put(ctx, s.Writer)
			if err != nil {
				return err
			}
			if kept, err = put(ctx, s.Writer); err != nil {
				return err
			}
			if err := s.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{gone, kept}}); err != nil {
				return err
			}
			time.Sleep(time.Minute) // it is folded
			if err := s.CommitFiles(ctx, manifest.Edit{Remove: []string{gone.Key}}); err != nil {
				return err
			}
			time.Sleep(time.Minute)
			return nil
		})
		if err := w.Ends(n); err != nil {
			t.Fatal(err)
		}
		f, err := manifest.ReadFormat(t.Context(), w.Mem, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, second); len(got) != 2 || !strings.Contains(strings.Join(got, " "), f.FileName(kept.Key)) {
			t.Errorf("the second store has %q", got)
		}
		if got := w.Keys("file/"); len(got) > 0 {
			t.Errorf("the log's store has %q", got)
		}
	})
}
