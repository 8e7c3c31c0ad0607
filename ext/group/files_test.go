package group_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
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

// TestRunFilesApart: the logs of a group share a store for their files, which is probed
// once.
func TestRunFilesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 8
		st, second := memstore.New(&memstore.Options{Clock: clock.Go()}), shared()
		ctx, stop := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		committed := make(chan int, partitions)
		go func() {
			ended <- group.Run(ctx, st, &group.RunOptions{
				Group:  &group.Options{Partitions: partitions, Identity: "a", Clock: clock.Go(), Probe: quickProbe},
				Writer: &writer.Options{Clock: clock.Go(), Files: second, Init: &manifest.InitOptions{Probe: quickProbe}},
			}, func(ctx context.Context, s *group.Session) error {
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
			log, err := group.PartitionStore(st, p)
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
