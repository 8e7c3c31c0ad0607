package fencepost_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
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
		w := &world{logtest.On(t, logtest.Format(), nil)}
		second := shared()
		o := options("a")
		o.Writer.Files, o.Writer.Init = second, &manifest.InitOptions{Grace: -1, Probe: quickProbe}
		o.Compactor = &compactor.Options{MinObjects: 1, Interval: time.Second}
		var kept manifest.File
		n := w.run("a", o, func(ctx context.Context, s *fencepost.Session) error {
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
		if err := w.ends(n); err != nil {
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

// TestRunGroupFilesApart: the logs of a group share a store for their files, which is probed
// once.
func TestRunGroupFilesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 8
		st, second := memstore.New(&memstore.Options{Clock: clock.Go()}), shared()
		ctx, stop := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		committed := make(chan int, partitions)
		go func() {
			ended <- fencepost.RunGroup(ctx, st, &fencepost.GroupOptions{
				Group:  &group.Options{Partitions: partitions, Identity: "a", Clock: clock.Go(), Probe: quickProbe},
				Writer: &writer.Options{Clock: clock.Go(), Files: second, Init: &manifest.InitOptions{Probe: quickProbe}},
			}, func(ctx context.Context, s *fencepost.PartitionSession) error {
				f, err := put(ctx, s.Writer)
				if err != nil {
					return err
				}
				if err := s.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f}}); err != nil {
					return err
				}
				committed <- s.Partition.Number()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		for range partitions {
			<-committed
		}
		stop(errStop)
		<-ended
		if got := names(t, second); len(got) != 2*partitions {
			t.Errorf("the store for files has %d objects: %q", len(got), got)
		}
		one := faultstore.New(memstore.New(nil), nil)
		if _, err := probe.Run(t.Context(), one, quickProbe); err != nil {
			t.Fatal(err)
		}
		if got, want := second.Counts().Of(faultstore.Put, "_fencepost/tmp/"), one.Counts().Of(faultstore.Put, "tmp/"); got >= 2*want {
			t.Errorf("it was probed with %d PUTs; one probe has %d", got, want)
		}
		for p := range partitions {
			log, err := fencepost.PartitionStore(st, p)
			if err != nil {
				t.Fatal(err)
			}
			r, err := reader.Open(t.Context(), log, &reader.Options{Files: second})
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.Snapshot(t.Context(), &reader.SnapshotOptions{Unpinned: true})
			if err != nil {
				t.Fatal(err)
			}
			if s.Live() != 1 {
				t.Errorf("partition %d has %d files", p, s.Live())
			}
		}
	})
}
