package writer_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

func adds(files ...manifest.File) manifest.Edit { return manifest.Edit{Add: files} }

func removes(files ...manifest.File) manifest.Edit {
	var e manifest.Edit
	for _, f := range files {
		e.Remove = append(e.Remove, f.Key)
	}
	return e
}

func (e *env) commit(w *writer.Writer, edit manifest.Edit, opts ...writer.AppendOption) {
	e.Helper()
	if err := w.CommitFiles(e.Context(), edit, opts...); err != nil {
		e.Fatal(err)
	}
}

// conflict fails the test unless an edit is refused because of a file, and nothing
// is written.
func (e *env) conflict(w *writer.Writer, edit manifest.Edit, key, why string) {
	e.Helper()
	e.Faulty.ResetCounts()
	err := w.CommitFiles(e.Context(), edit)
	if kind(err) != "not" || !errors.Is(err, writer.ErrConflict) || !strings.Contains(err.Error(), "file "+key+" ") || !strings.Contains(err.Error(), why) {
		e.Fatalf("error is %v, want a conflict on %s: %s", err, key, why)
	}
	if e.puts() != 0 || w.Err() != nil {
		e.Fatalf("%d objects were written; the writer says %v", e.puts(), w.Err())
	}
}

// live folds everything and returns the keys of the live files.
func (e *env) live() []string {
	e.Helper()
	e.compact()
	m := e.Newest()
	var keys []string
	for f, err := range e.State.Files(e.Context(), m) {
		if err != nil {
			e.Fatal(err)
		}
		keys = append(keys, f.Key)
	}
	return keys
}

func (e *env) lives(want ...manifest.File) {
	e.Helper()
	var keys []string
	for _, f := range want {
		keys = append(keys, f.Key)
	}
	slices.Sort(keys)
	if got := e.live(); !slices.Equal(got, keys) {
		e.Fatalf("live are %q, want %q", got, keys)
	}
}

// An edit is an entry of the log between records, with a cursor, and readers of
// records see nothing of it.
func TestCommitFiles(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		f, g := e.file(w, "f"), e.file(w, "gg")
		g.Records, g.Meta = 7, map[string]string{"day": "1"}
		e.append(w, "0")
		edit := adds(f, g)
		edit.Properties = map[string]string{"schema": "1"}
		future, err := w.CommitFilesAsync(t.Context(), edit, writer.Cursor([]byte("c")))
		if err != nil {
			t.Fatal(err)
		}
		if off, err := future.Wait(t.Context()); off != 1 || err != nil {
			t.Errorf("it lies at %d, %v", off, err)
		}
		e.append(w, "1")
		if h := e.header(at(1, 2)); h.Kind != frame.Edit || h.Offset != 1 || !h.HasCursor {
			t.Errorf("the object is %+v", h)
		}
		e.commit(w, manifest.Edit{Remove: []string{f.Key}, Unset: []string{"schema"}, Properties: map[string]string{"x": "y"}})
		b := e.open("b", 2, nil)
		if r := b.Recovered(); r.Offset != 2 || string(r.Cursor) != "c" {
			t.Errorf("recovered %+v", r)
		}
		e.holds("0", "1")
		e.lives(g)
		if m := e.Newest(); !maps.Equal(m.Properties, map[string]string{"x": "y"}) {
			t.Errorf("properties are %v", m.Properties)
		}
	})
}

// What does not fit is told before anything is written, and the writer goes on.
//
// guard:edit-epoch. The error names the epochs of the file and of the writer. Without this check: an
// application adds a file of epoch 1 through the writer of epoch 2; the edit is refused all the same,
// because that writer has not created the file; the error does not say that the file is too old, and
// must be written again.
//
// guard:edit-complete. Without this check: the writer knows no size and no checksum of other files, and
// compares the edit with zeros, which fit an empty file; the Close of the empty file f fails; an
// application adds f with size 0; the table names a file that is not there.
//
// guard:edit-content. Without this check: an application fills in the size of another file, and the
// edit is committed; from then on every backup and every check of the log takes the sound file for a
// damaged one.
//
// guard:edit-live. Without this check: a job merges files a and b into c; another commit has already
// replaced a and b by d; the job's commit removes a and b once more, and adds c; the compactor and all
// readers of the table meet this edit, which removes files that are not live, and report damage.
func TestConflicts(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		old, never := e.file(a, "old"), e.file(a, "never added")
		e.commit(a, adds(old))
		w := e.open("b", 2, nil)
		f := e.file(w, "f")
		foreign := manifest.File{Key: layout.FileKey(2, "0197a4c6-0000-7000-8000-000000000000", ".bin")}
		open := create(t, w, 0)
		larger := f
		larger.Size++
		other := f // guard:edit-content
		other.CRC32C++
		otherExt := f
		otherExt.Key = strings.TrimSuffix(f.Key, ".bin") + ".tar"
		e.conflict(w, adds(never), never.Key, "of epoch 1")
		e.conflict(w, adds(foreign), foreign.Key, "not created and closed")
		e.conflict(w, adds(f, manifest.File{Key: strings.Replace(foreign.Key, "0000-7000", "0001-7000", 1)}), strings.Replace(foreign.Key, "0000-7000", "0001-7000", 1), "not created")
		e.conflict(w, adds(larger), f.Key, "the edit says 2")
		e.conflict(w, adds(other), f.Key, fmt.Sprintf("CRC-32C %08x; the edit says 1 and %08x", f.CRC32C, other.CRC32C))
		if sum := crc32.Checksum([]byte("f"), crc32.MakeTable(crc32.Castagnoli)); f.CRC32C != sum {
			t.Errorf("the file has the checksum %08x, its content %08x", f.CRC32C, sum)
		}
		e.conflict(w, removes(f), f.Key, "not live")
		e.conflict(w, removes(never), never.Key, "not live")
		e.conflict(w, manifest.Edit{Add: []manifest.File{f}, Remove: []string{foreign.Key}}, foreign.Key, "not live")
		e.commit(w, adds(f))
		e.conflict(w, adds(f), f.Key, "added before")
		e.conflict(w, removes(otherExt), otherExt.Key, "not live")
		e.commit(w, removes(f, old))
		e.conflict(w, removes(old), old.Key, "not live")
		e.conflict(w, adds(f), f.Key, "added before")
		done := make(chan error)
		go func() { done <- open.Close() }()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		e.commit(w, adds(open.File()))
		e.lives(open.File())
	})
}

// An edit that is wrong in itself, or too large.
func TestBadEdits(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		twice := e.file(w, "x")
		text := func(n int) map[string]string { return map[string]string{"p": strings.Repeat("x", n)} }
		for name, c := range map[string]struct {
			edit manifest.Edit
			want error
		}{
			"empty":      {manifest.Edit{}, nil},
			"twice":      {adds(twice, twice), nil},
			"properties": {manifest.Edit{Properties: text(manifest.MaxProperties)}, writer.ErrTooLarge},
		} {
			err := w.CommitFiles(t.Context(), c.edit)
			if kind(err) != "not" || !errors.Is(err, writer.ErrTooLarge) == (c.want != nil) || errors.Is(err, writer.ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// Together with what an earlier leader has set.
		half := text(manifest.MaxProperties * 3 / 4)
		e.commit(w, manifest.Edit{Properties: half})
		w = e.open("b", 2, nil)
		other := manifest.Edit{Properties: map[string]string{"q": half["p"]}}
		if err := w.CommitFiles(t.Context(), other); kind(err) != "not" || !errors.Is(err, writer.ErrTooLarge) {
			t.Errorf("properties over the limit together: %v", err)
		}
		other.Unset = []string{"p"}
		e.commit(w, other)
		e.commit(w, manifest.Edit{Properties: map[string]string{"r": "1"}})
	})
	bubbleOn(t, fence.Limits{Object: 200, Record: 50, Cursor: 4}, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		for _, err := range []error{
			w.CommitFiles(t.Context(), manifest.Edit{Properties: map[string]string{"p": strings.Repeat("x", 200)}}),
			w.CommitFiles(t.Context(), manifest.Edit{Properties: map[string]string{"p": "x"}}, writer.Cursor([]byte("12345"))),
		} {
			if kind(err) != "not" || !errors.Is(err, writer.ErrTooLarge) {
				t.Errorf("error is %v", err)
			}
		}
		e.commit(w, manifest.Edit{Properties: map[string]string{"p": "x"}})
	})
}

// Which files are live is read at the first commit: from the chain, from the
// manifest, or from a manifest that has passed the beginning of this epoch.
func TestLiveFilesAreRead(t *testing.T) {
	for name, folded := range map[string]func(e *env, w *writer.Writer){
		"chain":    func(*env, *writer.Writer) {},
		"manifest": func(e *env, _ *writer.Writer) { e.compact() },
		"later": func(e *env, w *writer.Writer) {
			e.append(w, "x")
			e.compact()
			if p := e.Newest().Floor.Position; p != at(3, 2) {
				e.Fatalf("the floor is at %v", p)
			}
		},
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, nil)
			f, g, h := e.file(a, "f"), e.file(a, "g"), e.file(a, "h")
			e.commit(a, adds(f, g))
			b := e.open("b", 2, nil)
			e.append(b, "y")
			e.commit(b, removes(f))
			i := e.file(b, "i")
			e.commit(b, adds(i))
			c := e.open("c", 3, nil)
			folded(e, c)
			e.conflict(c, removes(f), f.Key, "not live")
			e.conflict(c, removes(h), h.Key, "not live")
			e.commit(c, removes(g))
			e.conflict(c, removes(g), g.Key, "not live")
			e.lives(i)
		}))
	}
}

// While the chain is walked a compactor folds and prunes it, and junk falls into the hole: a dead
// opener's seal leads straight to where this epoch begins, around the edit.
//
// guard:table-moved. A writer reads the edits from the floor up to the beginning of its own epoch. The
// first seal on the way may be junk. Without this check: Z opens epoch 6, appends nothing, and dies; W
// opens epoch 7, reads that the floor is slot 5/3, and pauses; a compactor folds and prunes slots 5/3
// and 5/4, which hold edits and no records; a late copy of a seal of Z lands in the hole 5/3; W follows
// this seal into epoch 6, and from there to its own epoch; W misses both edits, and checks its commits
// against a wrong table.
func TestTableMovesWhileItIsRead(t *testing.T) {
	for _, junk := range []bool{false, true} {
		t.Run(fmt.Sprint("junk ", junk), bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, &writer.Options{Checkpoint: -1})
			f := e.file(a, "f")
			e.commit(a, adds(f))
			e.open("b", 2, nil)
			c := e.open("c", 3, &writer.Options{Checkpoint: -1})
			e.before("c", faultstore.Get, layout.DataKey(at(1, 1)), func(faultstore.Op) bool {
				e.compact()
				e.gone(at(1, 1))
				if junk {
					e.seal(at(1, 1), 2)
				}
				return true
			})
			e.commit(c, removes(f))
			e.lives()
		}))
	}
}

// An edit lies after what was appended before it, in an object of its own, and no append goes past it.
//
// guard:edit-alone. Without this check: records wait in a batch; an edit joins the batch, and its
// document takes the place of the records; the writer acknowledges both; every reader meets an edit
// whose header counts records, and reports damage.
//
// guard:edit-turn. Without this wait: an edit waits for an empty batch; later appends fill each new
// batch first, so the edit is sent late or never. Or a record joins the batch of an edit, and every
// reader takes the object for damage.
func TestEditKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 4, Linger: time.Millisecond})
		f := e.file(w, "f")
		e.append(w, "0")
		e.commit(w, manifest.Edit{Properties: map[string]string{"loaded": "1"}})
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 3)))
		sent := e.async(w, "1")
		time.Sleep(time.Second)
		waits := e.async(w, "2")
		results := make(chan error, 3)
		go func() { results <- w.CommitFiles(t.Context(), adds(f)) }()
		synctest.Wait()
		for _, v := range []string{"3", "4"} {
			go func() {
				_, err := w.Append(t.Context(), recs(v))
				results <- err
			}()
			synctest.Wait()
		}
		release()
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		e.outcomes([]writer.Future{sent, waits}, "committed", "committed")
		var kinds []frame.Kind
		for seq := uint64(1); e.header(at(1, seq)).Kind != 0; seq++ {
			kinds = append(kinds, e.header(at(1, seq)).Kind)
		}
		if want := []frame.Kind{frame.Data, frame.Edit, frame.Data, frame.Data, frame.Edit, frame.Data}; !slices.Equal(kinds, want) {
			t.Errorf("the objects are %v, want %v", kinds, want)
		}
		if h := e.header(at(1, 5)); h.Offset != 3 {
			t.Errorf("the edit lies at %d", h.Offset)
		}
		if got := e.Contents(); len(got) != 5 || got[2] != "2" {
			t.Errorf("the log holds %q", got)
		}
	})
}

// An edit that waits for its turn ends with its context, and appends go on.
//
// guard:edit-order. Without this rule: two commits that run at the same time both remove file f; each
// finds that f is live; both are committed; the compactor and all readers of the table meet the second
// one, which removes a file that is not live, and report damage.
func TestEditGivenUpWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 4})
		f := e.file(w, "f")
		e.commit(w, manifest.Edit{Properties: map[string]string{"loaded": "1"}})
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		fs := e.several(w, "0", "1")
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 2)
		go func() { results <- w.CommitFiles(ctx, adds(f)) }() // waits for room
		synctest.Wait()
		go func() { results <- w.CommitFiles(ctx, removes(f)) }() // waits for its turn
		synctest.Wait()
		cancel(errBored)
		for range cap(results) {
			if err := <-results; kind(err) != "not" || !errors.Is(err, errBored) {
				t.Errorf("error is %v", err)
			}
		}
		fs = append(fs, e.async(w, "2"))
		release()
		e.outcomes(fs, "committed", "committed", "committed")
		e.commit(w, adds(f)) // nothing of the first try counts
		e.lives(f)
	})
}

// Commits that wait together share an object, unless one needs the other.
func TestCommitsShareAnObject(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1, Hedge: -1})
		var files []manifest.File
		for range 6 {
			f := e.file(w, "f")
			f.Meta = map[string]string{"m": strings.Repeat("x", 900)}
			files = append(files, f)
		}
		e.commit(w, adds(files[0]))
		time.Sleep(time.Second)
		for _, c := range []struct {
			name  string
			edits []manifest.Edit
			puts  int
		}{
			{"independent", []manifest.Edit{adds(files[1]), adds(files[2]), removes(files[0]), {Properties: map[string]string{"a": "1"}}, {Properties: map[string]string{"b": "1"}}}, 1},
			{"removes what was added", []manifest.Edit{adds(files[3]), removes(files[3])}, 2},
			{"sets again", []manifest.Edit{{Properties: map[string]string{"a": "2"}}, {Properties: map[string]string{"a": "3"}}}, 1},
			{"sets what was unset", []manifest.Edit{{Unset: []string{"a"}}, {Properties: map[string]string{"a": "4"}}}, 2},
			{"unsets what another set", []manifest.Edit{{Properties: map[string]string{"c": "1"}}, {Unset: []string{"c"}}}, 2},
			{"large", []manifest.Edit{{Properties: map[string]string{"d": strings.Repeat("x", 31<<10)}}, adds(files[4]), adds(files[5])}, 2},
		} {
			e.commit(w, manifest.Edit{Properties: map[string]string{"first": c.name}})
			e.Faulty.ResetCounts()
			f, err := w.CommitFilesAsync(e.Context(), manifest.Edit{Properties: map[string]string{"first": ""}}) // is in flight
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			var all sync.WaitGroup
			for _, edit := range c.edits {
				all.Go(func() {
					if err := w.CommitFiles(e.Context(), edit); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
				})
				synctest.Wait()
			}
			all.Wait()
			if _, err := f.Wait(e.Context()); err != nil || e.puts() != 1+c.puts {
				t.Errorf("%s: %d commits took %d objects (%v)", c.name, len(c.edits), e.puts()-1, err)
			}
			time.Sleep(time.Second)
		}
		if err := w.Close(e.Context()); err != nil {
			t.Fatal(err)
		}
		e.lives(files[1], files[2], files[4], files[5])
		e.compact()
		if got := e.Newest().Properties; got["a"] != "4" || got["b"] != "1" || got["c"] != "" || len(got["d"]) != 31<<10 {
			t.Errorf("the properties are %v", got)
		}
	})
}

// An append does not wait for the pace because an edit waits for it.
func TestAppendAfterAnEditThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w, _ := e.paced(&writer.Options{Checkpoint: -1})
		e.commit(w, manifest.Edit{Properties: map[string]string{"loaded": "1"}})
		time.Sleep(time.Second)
		start := time.Now()
		e.several(w, "0")
		if _, err := w.CommitFilesAsync(e.Context(), manifest.Edit{Properties: map[string]string{"a": "1"}}); err != nil {
			t.Fatal(err)
		}
		e.append(w, "1")
		if took := time.Since(start); took >= 64*ms {
			t.Errorf("it took %v", took)
		}
	})
}

// Of many commits at once that remove one file, one succeeds.
func TestCommitsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		f := e.file(a, "f")
		e.commit(a, adds(f))
		w := e.open("b", 2, nil)
		var mu sync.Mutex
		got := map[string]int{}
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				err := w.CommitFiles(t.Context(), removes(f))
				mu.Lock()
				defer mu.Unlock()
				got[kind(err)]++
			})
		}
		all.Wait()
		if got["committed"] != 1 || got["not"] != 15 {
			t.Errorf("outcomes are %v", got)
		}
		e.lives()
	})
}

// Outcomes of edits are as exact as those of records.
func TestEditOutcomes(t *testing.T) {
	setup := func(t *testing.T, e *env) (*writer.Writer, manifest.Edit) {
		w := e.open("a", 1, single)
		f := e.file(w, "f")
		e.commit(w, manifest.Edit{Properties: map[string]string{"loaded": "1"}})
		return w, adds(f)
	}
	async := func(e *env, w *writer.Writer, edit manifest.Edit) writer.Future {
		f, err := w.CommitFilesAsync(e.Context(), edit, writer.Cursor([]byte("c")))
		if err != nil {
			e.Fatal(err)
		}
		synctest.Wait()
		return f
	}
	t.Run("T05_reply lost", bubbled(func(t *testing.T, e *env) {
		w, edit := setup(t, e)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, 2)), Fault: faultstore.Fault{Err: faultstore.ErrReset}})
		e.outcomes([]writer.Future{async(e, w, edit)}, "committed")
		e.lives(edit.Add...)
	}))
	t.Run("fenced", bubbled(func(t *testing.T, e *env) {
		w, edit := setup(t, e)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		fs := []writer.Future{async(e, w, edit), e.async(w, "0")}
		b := e.open("b", 2, nil)
		release()
		e.outcomes(fs, "not", "not")
		e.fenced(w.Err(), 2)
		if r := b.Recovered(); len(r.Cursor) != 0 {
			t.Errorf("recovered %+v", r)
		}
		e.lives()
		if err := w.CommitFiles(t.Context(), edit); kind(err) != "not" || !errors.Is(err, writer.ErrFenced) {
			t.Errorf("a commit of a fenced writer: %v", err)
		}
	}))
	t.Run("after a gap", bubbled(func(t *testing.T, e *env) {
		w, edit := setup(t, e)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		fs := []writer.Future{e.async(w, "0")}
		synctest.Wait()
		fs = append(fs, async(e, w, edit))
		if e.header(at(1, 3)).Kind != frame.Edit {
			t.Fatal("the edit has not landed")
		}
		e.outcomes(fs, "pending", "pending")
		e.open("b", 2, nil)
		release()
		e.outcomes(fs, "not", "not")
		e.lives()
	}))
	t.Run("aborted", bubbled(func(t *testing.T, e *env) {
		w, edit := setup(t, e)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- w.CommitFiles(ctx, edit) }()
		synctest.Wait()
		cancel()
		if err := <-result; kind(err) != "unknown" {
			t.Errorf("error is %v", err)
		}
		abandon(w)
		release()
		if err := w.Flush(t.Context()); kind(err) != "unknown" {
			t.Errorf("Flush: %v", err)
		}
		e.lives()
	}))
	t.Run("never sent", bubbled(func(t *testing.T, e *env) {
		opts := *single
		opts.Concurrency, opts.Window = 1, 1
		w := e.open("a", 1, &opts)
		f := e.file(w, "f")
		e.commit(w, manifest.Edit{Properties: map[string]string{"loaded": "1"}})
		e.hold("a", faultstore.Put, layout.DataPrefix)
		fs := []writer.Future{e.async(w, "0")}
		synctest.Wait()
		fs = append(fs, async(e, w, adds(f)))
		abandon(w)
		e.outcomes(fs, "unknown", "not")
	}))
}
