package backup_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}

// named is a store in memory with a place of its own.
func named(name string) store.Store { return memstore.New(&memstore.Options{Name: "mem://" + name}) }

// apartIn makes a log whose files are in a second store, and lets it live for a while.
func apartIn(t *testing.T, st, second store.Store) *life {
	t.Helper()
	if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Grace: -1, Files: second, Probe: quickProbe}); err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, st: st, files: second}
	l.begin()
	return l
}

// table reads all live files.
func table(t *testing.T, st, second store.Store) (all []string) {
	t.Helper()
	r, err := reader.Open(t.Context(), st, &reader.Options{Files: second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Snapshot(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for f, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		file, err := s.Open(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f.Key+" "+string(body))
	}
	return all
}

// whole fails the test if verify finds something wrong.
func whole(t *testing.T, st store.Store, o *verify.Options) {
	t.Helper()
	r, err := verify.Run(t.Context(), st, o)
	if err != nil || !r.OK() {
		t.Errorf("%s is not whole: %v, %v", st.Traits().Name, r.Problems, err)
	}
}

// TestFilesOfABusyLog: a log with a second store for its files is written and compacted while it
// is copied. The backup has the files in itself, and is whole by itself. The restored log has
// them in its own second store, which another log uses too, and goes on there.
func TestFilesOfABusyLog(t *testing.T) {
	for every := 1; every <= 9; every += 2 {
		src, lake := named("log"), named("lake")
		l := apartIn(t, src, lake)
		f := faultstore.New(src, nil)
		var busy sync.Mutex
		requests := 0
		f.SetBefore(func(context.Context, faultstore.Op) {
			if !busy.TryLock() {
				return
			}
			defer busy.Unlock()
			if l.epoch > 6 {
				return
			}
			if requests++; requests%every == 0 {
				l.lead()
				l.compact()
			}
		})
		to := named("backup")
		r, err := backup.Make(t.Context(), f, to, &backup.Options{Files: lake})
		if err != nil || r.Files != "mem://lake" || !r.Verified {
			t.Fatalf("every %d: %+v, %v", every, r, err)
		}
		whole(t, to, &verify.Options{Copy: true})
		files := table(t, to, nil)
		if len(files) < 4 {
			t.Errorf("every %d: the backup has the files %q", every, files)
		}

		// The second store of the restored log has another log, which stays as it is.
		restored, second := named("restored"), named("second")
		other := apartIn(t, named("other"), second)
		others := table(t, other.st, second)
		r, err = backup.Restore(t.Context(), to, restored, &backup.Options{Files: second, Probe: quickProbe})
		if err != nil || r.Files != "mem://second" || !r.Verified {
			t.Fatalf("every %d: %+v, %v", every, r, err)
		}
		if got := table(t, restored, second); !slices.Equal(got, files) {
			t.Errorf("every %d: restored are the files %q, want %q", every, got, files)
		}
		if got, want := contents(t, restored), contents(t, to); !slices.Equal(got, want) {
			t.Errorf("every %d: %q, want %q", every, got, want)
		}
		for info, err := range restored.List(t.Context(), layout.FilePrefix, nil) {
			t.Errorf("every %d: the log's own store has %s, %v", every, info.Key, err)
		}
		// It is the second store of the restored log: a writer creates files there, and a
		// compactor may delete some.
		again := &life{t: t, st: restored, files: second, epoch: r.Epoch}
		again.lead()
		again.compact()
		whole(t, restored, &verify.Options{Files: second})
		if got := table(t, other.st, second); !slices.Equal(got, others) {
			t.Errorf("every %d: the other log has the files %q, want %q", every, got, others)
		}
		// And the backup can be restored again, elsewhere.
		if _, err := backup.Restore(t.Context(), to, named("third"), &backup.Options{Files: named("fourth"), Probe: quickProbe}); err != nil {
			t.Errorf("every %d: %v", every, err)
		}
	}
}

// TestResumeFiles: each request of a backup, and of a restore to both its stores, fails once. The
// next call goes on, and in the end all is there.
func TestResumeFiles(t *testing.T) {
	src, lake := named("log"), named("lake")
	l := apartIn(t, src, lake)
	to, restored, second := named("backup"), named("restored"), named("second")
	run := func(to store.Store) (*backup.Report, error) {
		return backup.Make(t.Context(), src, to, &backup.Options{Files: lake})
	}
	if n := killed(t, to, run); n == 0 {
		t.Error("the last backup has copied everything again")
	}
	// It is brought up to date.
	l.lead()
	r, err := run(to)
	if err != nil || r.Present == 0 || r.Present == r.Objects || r.Files != "mem://lake" {
		t.Fatalf("%+v, %v", r, err)
	}
	want, files := contents(t, src), table(t, src, lake)
	apartIn(t, named("other"), second) // so that no run probes it: probes take more requests at times
	restore := func(log, second store.Store) (*backup.Report, error) {
		return backup.Restore(t.Context(), to, log, &backup.Options{Files: second, Probe: quickProbe})
	}
	n := killed(t, second, func(second store.Store) (*backup.Report, error) { return restore(restored, second) })
	if n == 0 {
		t.Error("the last restore has copied everything again")
	}
	// A restore that is done may be called again.
	if r, err := restore(restored, second); err != nil || r.Present != r.Objects {
		t.Errorf("%+v, %v", r, err)
	}
	if got := table(t, restored, second); !slices.Equal(got, files) {
		t.Errorf("%q, want %q", got, files)
	}
	if got := contents(t, restored); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	again, lake2 := named("again"), named("lake2")
	killed(t, again, func(log store.Store) (*backup.Report, error) { return restore(log, lake2) })
	if got := table(t, again, lake2); !slices.Equal(got, files) {
		t.Errorf("%q, want %q", got, files)
	}
}

// TestFilesRefused: no backup without the store that has the files; no restore without a store
// for them, to where it would meet the original, or to where something else is.
func TestFilesRefused(t *testing.T) {
	src, lake := named("log"), named("lake")
	l := apartIn(t, src, lake)
	f, err := manifest.ReadFormat(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	done, plain, plainDone := named("backup"), newLog(t), named("plain-backup")
	begun(t, plain)
	if _, err := backup.Make(t.Context(), src, done, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Make(t.Context(), plain, plainDone, nil); err != nil {
		t.Fatal(err)
	}
	used := named("used")
	fixture.Put(t, used, layout.FilesDir(f.Log)+"/x", []byte("somebody's"))
	half := named("half")
	fixture.Put(t, half, layout.FileKey(1, "x", ""), []byte("a file"))
	overwrites := overwriting{named("overwrites")}
	below := named("r/log")
	ready := named("ready")
	if _, err := backup.Restore(t.Context(), done, ready, &backup.Options{Files: named("second"), Probe: quickProbe}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		says string
		kind error
		run  func() (*backup.Report, error)
	}{
		"backup without": {"--files URL", manifest.ErrFiles, func() (*backup.Report, error) { return backup.Make(t.Context(), src, named("b"), nil) }},
		"backup of another store": {"is not the one that has the files", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Make(t.Context(), src, named("b"), &backup.Options{Files: named("wrong")})
		}},
		"backup not needed": {"leave out", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Make(t.Context(), plain, named("b"), &backup.Options{Files: lake})
		}},
		"backup among the files": {"would delete the backup", nil, func() (*backup.Report, error) {
			return backup.Make(t.Context(), src, named("lake/backup"), &backup.Options{Files: lake})
		}},
		"restore without": {"mem://lake; say with --files URL where they go", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, named("r"), nil)
		}},
		"restore not needed": {"leave out --files", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), plainDone, named("r"), &backup.Options{Files: named("f")})
		}},
		"restore to the original's": {"has those of the same log in mem://log", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, named("r"), &backup.Options{Files: lake})
		}},
		"restore above the log": {"lie one within the other", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, below, &backup.Options{Files: named("r")})
		}},
		"restore around the backup": {"would delete the backup", nil, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, named("r"), &backup.Options{Files: named("backup/files")})
		}},
		"restore again with another": {"is not the one that has the files", manifest.ErrFiles, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, ready, &backup.Options{Files: named("third")})
		}},
		"restore among files": {"has " + layout.FilesDir(f.Log) + "/x, which is not in the backup", nil, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, named("r"), &backup.Options{Files: used})
		}},
		"restore to a log's own files": {"the files of the restored log go to mem://f", nil, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, half, &backup.Options{Files: named("f")})
		}},
		"restore to a store that overwrites": {"", probe.ErrRefused, func() (*backup.Report, error) {
			return backup.Restore(t.Context(), done, named("r"), &backup.Options{Files: overwrites, Probe: quickProbe})
		}},
	} {
		if _, err := c.run(); err == nil || !strings.Contains(err.Error(), c.says) || c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: want %q: %v", name, c.says, err)
		}
	}
	for info, err := range used.List(t.Context(), layout.SharedDir+"/", nil) {
		t.Errorf("a restore that was refused has written %s, %v", info.Key, err)
	}
	for _, st := range []store.Store{below, overwrites} {
		for info, err := range st.List(t.Context(), "", nil) {
			t.Errorf("a restore that was refused has written %s to %s, %v", info.Key, st.Traits().Name, err)
		}
	}
	// The original did not notice.
	l.lead()
	l.compact()
	whole(t, src, &verify.Options{Files: lake})
}

// TestRestoresMeet: while a restore copies, somebody takes it for dead, deletes its mark, and restores
// the same backup to another place, with the same store for files. Only one of them becomes a log.
func TestRestoresMeet(t *testing.T) {
	src, lake, to := named("log"), named("lake"), named("backup")
	apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	for place, other := range map[string]store.Store{"mem://two": named("two"), "mem://one at http://elsewhere": elsewhere{named("one")}} {
		one, second := faultstore.New(named("one"), nil), named("second")
		met := one.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.SegmentPrefix)
		}, func(ctx context.Context) {
			for info, err := range second.List(ctx, layout.SharedDir+"/", nil) {
				if err != nil {
					t.Error(err)
				}
				if err := second.Delete(ctx, info.Key); err != nil {
					t.Error(err)
				}
			}
			if _, err := backup.Restore(ctx, to, other, &backup.Options{Files: second, Probe: quickProbe}); err != nil {
				t.Error(err)
			}
		})
		_, err := backup.Restore(t.Context(), to, one, &backup.Options{Files: second, Probe: quickProbe})
		if !met() || !errors.Is(err, manifest.ErrFiles) || !strings.Contains(err.Error(), place) {
			t.Errorf("%t, %v", met(), err)
		}
		if _, err := manifest.ReadFormat(t.Context(), one, nil); !errors.Is(err, manifest.ErrRestoring) {
			t.Errorf("the first is a log: %v", err)
		}
	}
}

// TestRestoreSleeps: a restore has found the store for files unused, and sleeps in its probe, or before
// it creates the mark. Meanwhile the same backup is restored to another place with the same store for
// files, and that log lives. The first restore wakes, and is refused; the log does not notice.
func TestRestoreSleeps(t *testing.T) {
	src, lake, to := named("log"), named("lake"), named("backup")
	apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	f, err := manifest.ReadFormat(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{layout.TmpPrefix, layout.MarkKey(f.Log)} {
		one, two, second := named("one"), named("two"), named("second")
		slow := faultstore.New(second, nil)
		l := &life{t: t, st: two, files: second}
		met := slow.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.SharedDir+"/"+before)
		}, func(ctx context.Context) {
			r, err := backup.Restore(ctx, to, two, &backup.Options{Files: second, Probe: quickProbe})
			if err != nil {
				t.Error(err)
				return
			}
			l.epoch = r.Epoch
			l.compact()
			l.lead()
		})
		_, err := backup.Restore(t.Context(), to, one, &backup.Options{Files: slow, Probe: quickProbe})
		if !met() || !errors.Is(err, manifest.ErrFiles) || !strings.Contains(err.Error(), "nothing was copied: manifest: wrong store for files: the store for files, mem://second, has those of the same log in mem://two, or a restore to there has begun") {
			t.Errorf("%s: %v", before, err)
		}
		if all := objects(t, one); len(all) > 0 {
			t.Errorf("the restore that was refused has written %d objects", len(all))
		}
		// Its writer and its compactor go on.
		l.lead()
		l.compact()
		whole(t, two, &verify.Options{Files: second})
	}
}

// TestRestoresToOneNameOnTwoServers: a backup is restored to places of the same name on two servers, with one store for files. The
// second restore is refused, also while the first one is interrupted. A mark of an older version does not name the server.
func TestRestoresToOneNameOnTwoServers(t *testing.T) {
	src, lake, to := named("log"), named("lake"), named("backup")
	apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	for _, done := range []bool{false, true} {
		second, one := named("second"), named("one")
		o := &backup.Options{Files: second, Probe: quickProbe}
		first := one
		if !done {
			first = rotting{one, layout.SegmentPrefix}
		}
		if _, err := backup.Restore(t.Context(), to, first, o); (err == nil) != done {
			t.Fatal(err)
		}
		other := elsewhere{named("one")}
		_, err := backup.Restore(t.Context(), to, other, o)
		if !errors.Is(err, manifest.ErrFiles) || !strings.Contains(err.Error(), "has those of the same log in mem://one") {
			t.Errorf("done: %t: %v", done, err)
		}
		if all := objects(t, other); len(all) > 0 {
			t.Errorf("done: %t: the restore that was refused has written %d objects", done, len(all))
		}
		if _, err := backup.Restore(t.Context(), to, one, o); err != nil {
			t.Errorf("done: %t: the first one goes on: %v", done, err)
		}
	}
}

// TestRestoreAmongOthers: while a restore creates the mark, somebody puts an object among the files.
// The restore says which, and leaves its mark. Only a restore to the same place goes on.
func TestRestoreAmongOthers(t *testing.T) {
	src, lake, to, one, second := named("log"), named("lake"), named("backup"), named("one"), named("second")
	apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	f, err := manifest.ReadFormat(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	mark, stranger := layout.SharedDir+"/"+layout.MarkKey(f.Log), layout.FilesDir(f.Log)+"/x"
	slow := faultstore.New(second, nil)
	slow.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Put && op.Key == mark {
			fixture.Put(t, second, stranger, []byte("of a log that is gone"))
		}
	})
	_, err = backup.Restore(t.Context(), to, one, &backup.Options{Files: slow, Probe: quickProbe})
	if err == nil || !strings.Contains(err.Error(), "it has "+stranger+", which is not in the backup; nothing was copied") || !strings.Contains(err.Error(), "The mark "+mark+" is left in mem://second: restore to mem://one again") {
		t.Errorf("%v", err)
	}
	if all := objects(t, one); len(all) > 0 {
		t.Errorf("the restore that was refused has written %d objects", len(all))
	}
	if err := second.Delete(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	_, err = backup.Restore(t.Context(), to, named("two"), &backup.Options{Files: second, Probe: quickProbe})
	if !errors.Is(err, manifest.ErrFiles) || !strings.Contains(err.Error(), "Or restore to mem://one, if that restore was interrupted") {
		t.Errorf("%v", err)
	}
	if _, err := backup.Restore(t.Context(), to, one, &backup.Options{Files: second, Probe: quickProbe}); err != nil {
		t.Error(err)
	}
	whole(t, one, &verify.Options{Files: second, Copy: true})
}

// overwriting ignores the condition that an object is absent.
type overwriting struct{ store.Store }

func (o overwriting) Put(ctx context.Context, key string, body []byte, _ *store.PutOptions) (store.Info, error) {
	return o.Store.Put(ctx, key, body, nil)
}
