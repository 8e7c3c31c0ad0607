package runtest_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

var days = flag.Int("days", 2, "how many days of virtual time TestWhatGrows takes; docs/sizing.md has what 30 gave")

// listing counts the keys that are listed.
type listing struct {
	store.Store
	ignores     bool         // StartAfter, as directory buckets of S3 do
	lists, keys atomic.Int64 // the writer's goroutines list too
}

func (l *listing) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	l.lists.Add(1)
	return func(yield func(store.Info, error) bool) {
		for info, err := range l.Store.List(ctx, prefix, opts) {
			// A store in memory takes StartAfter for a hint, as some stores do. This one does not.
			if opts != nil && info.Key <= opts.StartAfter && !l.ignores {
				continue
			}
			l.keys.Add(1)
			if !yield(info, err) {
				return
			}
		}
	}
}

// uploading is a store that knows of uploads that broke off, as S3 does.
type uploading struct {
	store.Store
	broken []store.Info
}

func (u *uploading) AbortUploads(_ context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	before := len(u.broken)
	u.broken = slices.DeleteFunc(u.broken, func(info store.Info) bool {
		info.Date = time.Now()
		return strings.HasPrefix(info.Key, prefix) && doomed(info)
	})
	return before - len(u.broken), nil
}

// life is a log that is used: one record each five minutes and a checkpoint after each, which a
// consumer handles; and a failover a day, in which much is left: a file that was not committed,
// an upload that broke off, a snapshot that was not closed, and an object of a probe.
type life struct {
	testing.TB
	log     *logtest.Log
	st      *listing
	files   *uploading           // the second store, or the log's own
	second  store.Store          // nil for none
	compact *compactor.Compactor // nil for none
	live    []manifest.File
}

// newLife makes the log, with a store of its own for its files or without.
func newLife(t *testing.T, log *logtest.Log, apart, compacts bool) *life {
	t.Helper()
	l := &life{TB: t, log: log, st: &listing{Store: log.Mem}, files: &uploading{Store: log.Mem}}
	home := store.Store(l.files)
	if apart {
		home = log.Mem
		l.files.Store = memstore.New(&memstore.Options{Clock: clock.Go(), Name: "mem://lake"})
		l.second = l.files
		log.Remove(layout.FormatKey)
		f, err := manifest.Init(t.Context(), log.Mem, &manifest.InitOptions{
			Files: l.second, Settle: logtest.Quick, Probed: fixture.Probed(time.Now()), Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
		})
		check(t, err)
		log.Format, log.State = f, state.With(log.Mem, f, &state.Options{Files: l.second, Settle: logtest.Quick, Clock: clock.Go()})
	}
	if compacts {
		var err error
		l.compact, err = compactor.New(home, &compactor.Options{Token: fence.NewToken(1), Settle: logtest.Quick, Clock: clock.Go(), Files: l.second})
		check(t, err)
	}
	return l
}

// count counts the objects of each kind, and what is in a second store besides.
func (l *life) count() map[string]int {
	l.Helper()
	kinds := map[string]int{"upload": len(l.files.broken)}
	for _, key := range l.log.Keys("") {
		kinds[layout.KindOf(key)]++
	}
	if l.second == nil {
		return kinds
	}
	for info, err := range l.second.List(context.Background(), "", nil) {
		check(l, err)
		if strings.HasPrefix(info.Key, layout.SharedDir) {
			kinds["shared"]++
		} else {
			kinds[layout.KindFile]++
		}
	}
	return kinds
}

// consume handles what there is, as a process of its own.
func (l *life) consume() {
	l.Helper()
	r, err := reader.Open(l.Context(), l.log.Mem, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()})
	check(l, err)
	c, err := r.TakeConsumer(l.Context(), "exports")
	check(l, err)
	next, _ := c.Next()
	for rec, err := range r.Read(l.Context(), next) {
		check(l, err)
		next = rec.Offset + 1
	}
	check(l, c.Commit(l.Context(), next))
}

func (l *life) day() {
	l.Helper()
	ctx := l.Context()
	e, err := leader.New(l.st, layout.KindLock, &leader.Options{Clock: clock.Go()})
	check(l, err)
	term, err := e.Campaign(ctx)
	check(l, err)
	check(l, term.Resign(ctx))
	l.log.Epoch++
	w, err := writer.Open(ctx, l.st, fence.NewToken(l.log.Epoch), &writer.Options{Settle: logtest.Quick, Clock: clock.Go(), NoCompress: true, Files: l.second})
	check(l, err)
	for i := range 24 * 12 {
		l.log.Append(w, fmt.Sprintf("%d/%d", l.log.Epoch, i))
		if i%12 == 0 {
			l.commit(w)
			l.consume()
			if l.compact != nil {
				_, err := l.compact.Once(ctx)
				check(l, err)
			}
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
	}
	// The end of a process that is killed. Its context ends, and so does this test.
	f, err := w.CreateFile(ctx, ".lost", 0)
	check(l, err)
	check(l, f.Close())
	check(l, w.Close(ctx))
	name := f.File().Key
	if l.second != nil {
		name = l.log.Format.FileName(name)
	}
	l.files.broken = append(l.files.broken, store.Info{Key: name + "x", LastModified: time.Now()})
	l.log.Put(layout.TmpPrefix+uuid.NewString(), []byte("a probe's"))
	_, err = l.log.State.Pin(ctx, &state.PinOptions{TTL: time.Minute}) // as a snapshot makes one, and its process is killed
	check(l, err)
}

// commit adds a file to the table, and removes the one before.
func (l *life) commit(w *writer.Writer) {
	f, err := w.CreateFile(l.Context(), ".x", 0)
	check(l, err)
	check(l, f.Close())
	edit := manifest.Edit{Add: []manifest.File{f.File()}}
	for _, old := range l.live {
		edit.Remove = append(edit.Remove, old.Key)
	}
	check(l, w.CommitFiles(l.Context(), edit))
	l.live = edit.Add
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatGrows counts the objects of a log with a compactor and without one, and with its files
// in a second store.
func TestWhatGrows(t *testing.T) {
	for name, c := range map[string]struct{ compacts, apart bool }{
		"without a compactor": {}, "with one": {compacts: true},
		"without a compactor, files apart": {apart: true}, "with one, files apart": {compacts: true, apart: true},
	} {
		t.Run(name, func(t *testing.T) {
			logtest.Bubble(t, logtest.WithGrace(manifest.DefaultGrace), func(t *testing.T, log *logtest.Log) {
				l := newLife(t, log, c.apart, c.compacts)
				var kinds map[string]int
				for day := range *days {
					l.st.lists.Store(0)
					l.st.keys.Store(0)
					l.day()
					kinds = l.count()
					if d := day + 1; d == 1 || d%5 == 0 || d == *days {
						t.Logf("day %d: %v; the leader of that day made %d LISTs with %d keys", d, kinds, l.st.lists.Load(), l.st.keys.Load())
					}
				}
				commits := *days * 24 * 13
				if kinds["manifest"] > 3000 || l.st.keys.Load() > 60_000 {
					t.Errorf("%d manifests; %d keys were listed", kinds["manifest"], l.st.keys.Load())
				}
				if c.compacts != (kinds["data"] < commits/2) {
					t.Errorf("%d objects of the log after %d commits", kinds["data"], commits)
				}
				if c.compacts && (kinds["file"] > 30 || kinds["pin"] > 1 || kinds["tmp"] > 2 || kinds["upload"] > 2) {
					t.Errorf("left are %v", kinds)
				}
				if !c.compacts && (kinds["file"] < 25**days || kinds["pin"] != *days || kinds["tmp"] != *days || kinds["upload"] != *days) {
					t.Errorf("there are %v; who has deleted the rest?", kinds)
				}
				if c.apart && kinds["shared"] != 1 || kinds["consumer"] != 1 || kinds["unknown"] > 0 {
					t.Errorf("there are %v", kinds)
				}
				l.log.Contents()
			})
		})
	}
}

// TestManifestsWithoutACompactor: a leader commits a record each ten seconds, and a checkpoint after each.
// Nobody compacts. So the leader deletes old manifests itself, and its looks list few of the others.
func TestManifestsWithoutACompactor(t *testing.T) {
	for name, c := range map[string]struct {
		ignores bool
		keys    int64 // that ten minutes may list
	}{"StartAfter": {false, 1_000}, "no StartAfter": {true, test.Of[int64](90_000, 150_000)}} {
		t.Run(name, func(t *testing.T) {
			logtest.Bubble(t, logtest.WithGrace(manifest.DefaultGrace), func(t *testing.T, log *logtest.Log) {
				l := newLife(t, log, false, false)
				l.st.ignores = c.ignores
				log.Epoch++
				w, err := writer.Open(t.Context(), l.st, fence.NewToken(log.Epoch), &writer.Options{Settle: logtest.Quick, Clock: clock.Go(), NoCompress: true})
				check(t, err)
				last := int64(0)
				appends := test.Of(6, 24) * 360 // in five hours the first are deleted
				for i := range appends {
					if i == appends-60 {
						last = l.st.keys.Load()
					}
					log.Append(w, "x")
					time.Sleep(10 * time.Second)
					synctest.Wait()
				}
				manifests, listed := l.count()["manifest"], l.st.keys.Load()-last
				t.Logf("%d manifests; the last ten minutes listed %d keys", manifests, listed)
				if most := test.Of(1500, 3000); manifests > most || listed > c.keys {
					t.Errorf("%d manifests, want at most %d; %d keys were listed, want at most %d", manifests, most, listed, c.keys)
				}
				check(t, w.Close(t.Context()))
			})
		})
	}
}

// A program that imports this module has not begun to use it, and its heap is small already.
// A codec of groups once took 21 MB there, in each process, also in compactors.
func TestLoaded(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const limit = 5 << 20
	sum, ours := 0, regexp.MustCompile(`(?m)^init (github\.com/fencepost/fencepost\S*) @.* clock, (\d+) bytes`).FindAllStringSubmatch(string(out), -1)
	for _, line := range ours {
		n, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if len(ours) == 0 || sum > limit {
		t.Errorf("the packages allocate %d bytes before they are used, want at most %d:\n%s", sum, limit, out)
	}
}
