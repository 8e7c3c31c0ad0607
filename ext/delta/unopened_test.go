package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// breakable makes a source whose store refuses everything while broken is set.
func breakable(s *delta.Source) (broken *error) {
	broken = new(error)
	st := faultstore.New(s.Log, &faultstore.Options{Clock: clock.Go(), Hook: func(faultstore.Op) faultstore.Fault {
		return faultstore.Fault{Drop: *broken != nil, Err: *broken}
	}})
	s.Log = st
	return broken
}

// open opens a publisher in virtual time.
func open(t *testing.T, root store.Store, sources []delta.Source, opts *delta.Options) *delta.Publisher {
	t.Helper()
	if opts == nil {
		opts = &delta.Options{}
	}
	opts.Settle, opts.Clock = logtest.Quick, clock.Go()
	p, err := delta.Open(t.Context(), root, sources, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// round publishes, and fails on errors of all sources but some.
func round(t *testing.T, p *delta.Publisher, but ...int) delta.Report {
	t.Helper()
	r, err := p.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range r.Sources {
		if bad := s.Err != nil; bad != slices.Contains(but, i) {
			t.Fatalf("source %d: %v", i, s.Err)
		}
	}
	return r
}

// commitEdit adds a file with a row, and removes others.
func commitEdit(t *testing.T, w *writer.Writer, remove ...string) string {
	t.Helper()
	f, err := fileOf(w, []order{{ID: 1}})
	if err == nil {
		err = w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}, Remove: remove})
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Key
}

func compactLog(t *testing.T, st store.Store, token fence.Epoch) {
	t.Helper()
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(token), Settle: logtest.Quick, Clock: clock.Go()})
	if err == nil {
		_, err = c.Once(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func pinsOf(t *testing.T, st store.Store) (versions []uint64) {
	t.Helper()
	r, err := reader.Open(t.Context(), st, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	pins, err := r.Pins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pins {
		versions = append(versions, p.Version)
	}
	return versions
}

func exists(t *testing.T, st store.Store, key string) bool {
	t.Helper()
	_, _, err := store.Read(t.Context(), st, key, &store.ReadOptions{Limit: 1 << 20})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// The log of one source cannot be opened for weeks. The others are published; the log of the table is
// cleaned, and holds of the others are released. What the table has of the bad source stays in it and
// in the store. When the log can be opened again, the next round publishes it.
func TestSourceThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 3)
		logs := []store.Store{sources[0].Log, sources[1].Log, sources[2].Log}
		broken := breakable(&sources[0])
		old := make([]string, 3)
		for i, w := range all {
			old[i] = commitEdit(t, w)
			compactLog(t, logs[i], 1)
		}
		round(t, open(t, root, sources, nil))
		held := pinsOf(t, logs[0])
		time.Sleep(day)

		*broken = faultstore.ErrDenied
		p := open(t, root, sources, nil)
		p.CheckpointEvery(2)
		last := slices.Clone(old)
		const days = 16
		for n := range days {
			for i, w := range all {
				last[i] = commitEdit(t, w, last[i])
				compactLog(t, logs[i], fence.Epoch(2+n))
			}
			r := round(t, p, 0)
			if s := r.Sources[0]; !errors.Is(s.Err, store.ErrDenied) || s.Name == "" || r.Sources[1].Published != uint64(n+2) {
				t.Fatalf("%+v", r)
			}
			time.Sleep(day)
		}
		if exists(t, root, "_delta_log/00000000000000000001.json") {
			t.Error("the log of the table is not cleaned")
		}
		if !exists(t, logs[0], old[0]) {
			t.Error("the table names a file of the log that cannot be opened, and it is gone")
		}
		if exists(t, logs[1], old[1]) {
			t.Error("the retention has passed, and a file of a log that can be opened is still held")
		}
		if got := pinsOf(t, logs[0]); !slices.Equal(got, held) {
			t.Errorf("the log that cannot be opened has the pins %v, and had %v", got, held)
		}

		*broken = nil
		// Another publisher reads what is left of the log of the table: the files of all three.
		r, err := open(t, root, sources, nil).Status(t.Context())
		if err != nil || r.Files != 3 || r.Sources[0].Published != 1 || r.Sources[0].Manifest != held[0] {
			t.Errorf("%+v, %v", r, err)
		}
		r = round(t, p)
		if r.Files != 3 || r.Sources[0].Published != days+1 {
			t.Errorf("%+v", r)
		}
		for range 3 {
			time.Sleep(8 * day)
			for i := range all {
				last[i] = commitEdit(t, all[i], last[i])
			}
			round(t, p)
		}
		compactLog(t, logs[0], days+2)
		if slices.Contains(pinsOf(t, logs[0]), held[0]) || exists(t, logs[0], old[0]) {
			t.Errorf("the old version has left the retention; pinned are %v", pinsOf(t, logs[0]))
		}
	})
}

// A source that is left out is in the log once, until the reason changes, and once when it is
// published again. Run tells its hook likewise.
func TestLeftOutIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 2)
		broken := breakable(&sources[0])
		*broken = faultstore.ErrDenied
		commitEdit(t, all[0])
		commitEdit(t, all[1])
		core, lines := observer.New(zap.InfoLevel)
		failed := make(chan error, 10)
		p := open(t, root, sources, &delta.Options{Logger: zap.New(core), Hooks: delta.Hooks{Failed: func(err error) { failed <- err }}})
		want := func(what string, levels ...zapcore.Level) {
			t.Helper()
			var got []zapcore.Level
			for _, l := range lines.TakeAll() {
				got = append(got, l.Level)
				if name := l.ContextMap()["source"]; name != sources[0].Log.Traits().Name || l.LoggerName != "delta" {
					t.Errorf("%s: %v", what, l)
				}
			}
			if !slices.Equal(got, levels) {
				t.Errorf("%s: logged %v, want %v", what, got, levels)
			}
		}
		round(t, p, 0)
		want("the first round", zap.WarnLevel)
		round(t, p, 0)
		want("the second round")
		*broken = faultstore.ErrThrottled
		round(t, p, 0)
		want("another reason", zap.WarnLevel)
		*broken = nil
		round(t, p)
		want("it is back", zap.InfoLevel)
		round(t, p)
		want("it is still there")

		*broken = faultstore.ErrDenied
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		want("an hour of Run", zap.WarnLevel)
		if n := len(failed); n != 1 {
			t.Errorf("the hook was told %d times", n)
		} else if err := <-failed; !errors.Is(err, store.ErrDenied) {
			t.Errorf("the hook was told %v", err)
		}
		cancel()
		<-over
	})
}

// A group begins: the logs of some partitions are not there yet. Each is published when it comes.
func TestLogThatIsNotThereYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 1)
		later, err := store.Sub(root, "later")
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, delta.Source{Log: later, Files: "later/file/"})
		commitEdit(t, all[0])
		versions := make(chan delta.Report, 10)
		p := open(t, root, sources, &delta.Options{Hooks: delta.Hooks{Published: func(r delta.Report) { versions <- r }}})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- p.Run(ctx) }()
		if r := <-versions; r.Files != 1 || !errors.Is(r.Sources[1].Err, manifest.ErrNotInitialized) || r.Sources[1].Log != (fence.ID{}) {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Hour)
		if _, err := manifest.Init(t.Context(), later, &manifest.InitOptions{Grace: -1}); err != nil {
			t.Fatal(err)
		}
		w, err := writer.Open(t.Context(), later, fence.NewToken(1), &writer.Options{Settle: logtest.Quick, Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		commitEdit(t, w)
		if r := <-versions; r.Files != 2 || r.Err() != nil || time.Since(begun) > 2*time.Minute {
			t.Errorf("after %v: %+v", time.Since(begun), r)
		}
		cancel()
		<-over
		_ = w.Close(context.Background())
	})
}

// A source can be opened only later, and is a copy of another one. Neither is published from then on,
// and no pin of the two is released.
//
// guard:delta-twin. Without this rule: an operator copies a log, and both are written on; a publisher
// gets both as sources, and at first can open only the copy, so it does not notice; it publishes edit 4
// of the copy, and notes the copy's place; then it can open the log too; the log lacks that place, so
// the publisher takes the log for one that was restored from a backup; the table has the files of the
// copy, and the log is never published again.
func TestTwinThatIsOpenedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 2)
		last := commitEdit(t, all[0])
		commitEdit(t, all[1])
		twin := memstore.New(&memstore.Options{Clock: clock.Go()})
		for info, err := range store.ListAll(t.Context(), sources[0].Log, "", nil, nil) {
			if err != nil {
				t.Fatal(err)
			}
			body, _, err := store.Read(t.Context(), sources[0].Log, info.Key, &store.ReadOptions{Limit: 1 << 20})
			if err == nil {
				_, err = twin.Put(t.Context(), info.Key, body, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		sources = append(sources, delta.Source{Log: twin, Files: "twin/"})
		broken := breakable(&sources[2])
		*broken = faultstore.ErrDenied
		p := open(t, root, sources, nil)
		before := round(t, p, 2)
		held := pinsOf(t, sources[0].Log)
		time.Sleep(day)
		*broken = nil
		for range 20 {
			last = commitEdit(t, all[0], last)
			commitEdit(t, all[1])
			r := round(t, p, 0, 2)
			if !errors.Is(r.Sources[0].Err, delta.ErrOptions) || !strings.Contains(r.Sources[0].Err.Error(), "same log") || r.Sources[0].Published != before.Sources[0].Published {
				t.Fatalf("%+v", r)
			}
			time.Sleep(day)
		}
		if got := pinsOf(t, sources[0].Log); !slices.Equal(got, held) {
			t.Errorf("pinned are %v, want %v", got, held)
		}
		if _, err := p.Unpublish(t.Context()); !errors.Is(err, delta.ErrOptions) {
			t.Errorf("Unpublish: %v", err)
		}
		if _, err := delta.Open(t.Context(), root, sources, nil); !errors.Is(err, delta.ErrOptions) {
			t.Errorf("Open: %v", err)
		}
		if r := round(t, open(t, root, sources[:1], nil)); r.Sources[0].Published != 21 {
			t.Errorf("without the copy: %+v", r)
		}
	})
}

// One source cannot be opened. Unpublish takes the others out of the table, and names it. Called again,
// when it can be opened, Unpublish takes out the rest.
func TestUnpublishWithoutOneSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 3)
		logs := []store.Store{sources[0].Log, sources[1].Log, sources[2].Log}
		broken := breakable(&sources[1])
		for _, w := range all {
			commitEdit(t, w)
		}
		round(t, open(t, root, sources, nil))
		*broken = faultstore.ErrDenied
		p := open(t, root, sources, nil)
		r, err := p.Unpublish(t.Context())
		if !errors.Is(err, store.ErrDenied) || !strings.Contains(fmt.Sprint(err), sources[1].Log.Traits().Name) || r.Files != 1 || r.Sources[0].Err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		for i, want := range []int{0, 1, 0} {
			if got := pinsOf(t, logs[i]); len(got) != want {
				t.Errorf("log %d has the pins %v", i, got)
			}
		}
		*broken = nil
		if r, err := p.Unpublish(t.Context()); err != nil || r.Files != 0 || len(pinsOf(t, logs[1])) != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
