package rewrite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// lines is a table whose rows are numbers, one in a line.
type lines struct {
	*logtest.Log
	w *writer.Writer
	r *reader.Reader
}

func newLines(t testing.TB) *lines {
	t.Helper()
	l := logtest.New(t, logtest.Format(), nil)
	r, err := reader.Open(t.Context(), l.Mem, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	return &lines{l, l.Open(nil), r}
}

// file makes a file of some rows, which is not in the table yet.
func (l *lines) file(w *writer.Writer, rows ...int) manifest.File {
	l.Helper()
	f, err := w.CreateFile(context.Background(), ".txt", 0)
	if err != nil {
		l.Fatal(err)
	}
	for _, row := range rows {
		if _, err := fmt.Fprintln(f, row); err != nil {
			l.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		l.Fatal(err)
	}
	made := f.File()
	made.Records = uint64(len(rows))
	return made
}

// add commits n files, each with the next row.
func (l *lines) add(n, next int) (keys []string) {
	l.Helper()
	for i := range n {
		f := l.file(l.w, next+i)
		if err := l.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{f}}); err != nil {
			l.Fatal(err)
		}
		keys = append(keys, f.Key)
	}
	return keys
}

// rows reads the table.
func (l *lines) rows(ctx context.Context) (rows []int, files []manifest.File, err error) {
	s, err := l.r.Snapshot(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	for f, err := range s.Files(ctx) {
		if err != nil {
			return nil, nil, err
		}
		file, err := s.Open(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
		sc := bufio.NewScanner(file)
		for sc.Scan() {
			row, err := strconv.Atoi(sc.Text())
			if err != nil {
				return nil, nil, err
			}
			rows = append(rows, row)
		}
		if err := sc.Err(); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(rows)
	return rows, files, nil
}

// want fails the test unless the table has the rows 0 to n-1, each once.
func (l *lines) want(n int) (files []manifest.File) {
	l.Helper()
	rows, files, err := l.rows(context.Background())
	if err != nil || !slices.Equal(rows, upTo(n)) {
		l.Fatalf("the rows are %v, want those up to %d: %v", rows, n, err)
	}
	return files
}

func upTo(n int) (rows []int) {
	for i := range n {
		rows = append(rows, i)
	}
	return rows
}

// concat is a function of an application.
func concat(_ context.Context, out io.Writer, in []rewrite.Input) (records uint64, meta map[string]string, err error) {
	for _, f := range in {
		if _, err := io.Copy(out, f.Data); err != nil {
			return 0, nil, err
		}
		records += f.Records
	}
	return records, map[string]string{"files": strconv.Itoa(len(in))}, nil
}

func (l *lines) rewriter(f rewrite.Func, opts *rewrite.Options) *rewrite.Rewriter {
	l.Helper()
	if f == nil {
		f = concat
	}
	r, err := rewrite.New(l.w, l.r, f, opts)
	if err != nil {
		l.Fatal(err)
	}
	return r
}

// TestOnce merges all there is, level by level, and says what it has replaced.
func TestOnce(t *testing.T) {
	l := newLines(t)
	keys := l.add(20, 0)
	hooked := 0
	var passed []rewrite.Pass
	r := l.rewriter(nil, &rewrite.Options{MinFiles: 4, MaxFiles: 8, Hooks: rewrite.Hooks{
		Rewritten: func(rewrite.Rewrite) { hooked++ }, Passed: func(p rewrite.Pass) { passed = append(passed, p) },
	}})
	done, err := r.Once(t.Context())
	if err != nil || len(done) == 0 || hooked != len(done) {
		t.Fatalf("%d rewrites, %d reported, %v", len(done), hooked, err)
	}
	var replaced []string
	for _, d := range done {
		named, err := d.File.Replaces()
		if err != nil || len(named) != len(d.Replaced) || d.File.Meta["files"] != strconv.Itoa(len(named)) {
			t.Errorf("%v of %v, %v", named, d.Replaced, err)
		}
		for i, f := range d.Replaced {
			if named[i] != f.Key {
				t.Errorf("it names %s, and has replaced %s", named[i], f.Key)
			}
		}
		replaced = append(replaced, named...)
	}
	for _, key := range keys[:16] {
		if !slices.Contains(replaced, key) {
			t.Errorf("%s is left", key)
		}
	}
	if files := l.want(20); len(files) > 4 {
		t.Errorf("%d files are left", len(files))
	}
	// Nothing is left to do, and nothing is written to find that out.
	before := l.Keys("")
	if done, err := r.Once(t.Context()); err != nil || len(done) > 0 || !slices.Equal(before, l.Keys("")) {
		t.Errorf("%v, %v", done, err)
	}
	if len(passed) != 2 || len(passed[0].Rewrites) != hooked || passed[0].Err != nil || passed[0].Took <= 0 || len(passed[1].Rewrites) != 0 {
		t.Errorf("it told of the passes %+v", passed)
	}
}

// TestNeverBothNorNeither: while files are merged, added and replaced by others, and the log
// is compacted, each snapshot has each row up to some number once.
//
// guard:rewrite-one-edit. Without this: a rewriter adds file c with the rows of files a and b; a reader
// takes a snapshot with a, b and c, and counts each row twice; only then does the rewriter remove a and
// b.
func TestNeverBothNorNeither(t *testing.T) {
	l := newLines(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	background := func(f func() error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := f(); err != nil && ctx.Err() == nil {
					t.Error(err)
					stop()
				}
			}
		})
	}
	r := l.rewriter(nil, &rewrite.Options{MinFiles: 2, MaxFiles: 5})
	merged := 0
	background(func() error {
		done, err := r.Once(ctx)
		merged += len(done)
		return err
	})
	c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(1), Settle: logtest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	background(func() error {
		_, err := c.Once(ctx)
		return err
	})
	looks := 0
	for range 2 {
		background(func() error {
			rows, _, err := l.rows(ctx)
			if err == nil && !slices.Equal(rows, upTo(len(rows))) {
				err = fmt.Errorf("a snapshot has the rows %v", rows)
			}
			return err
		})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	replaced := 0
	rounds := test.Of(60, 150)
	for next := 0; next < rounds && ctx.Err() == nil; next++ {
		l.add(1, next)
		_, files, err := l.rows(ctx)
		if err != nil {
			t.Fatal(err)
		}
		looks++
		if next%3 > 0 {
			continue
		}
		// Somebody else rewrites a file too, for a reason of its own.
		old := files[rng.IntN(len(files))]
		if replaced += l.replace(old); t.Failed() {
			break
		}
	}
	stop()
	all.Wait()
	l.want(rounds)
	if merged < rounds/15 || replaced == 0 {
		t.Errorf("%d rewrites, %d replaced, %d looks: nothing was tried", merged, replaced, looks)
	}
	t.Logf("%d rewrites, %d files replaced by others", merged, replaced)
}

// replace replaces a file by one with the same rows, and returns 1 if it was still there.
func (l *lines) replace(old manifest.File) int {
	l.Helper()
	body, _, err := store.Read(context.Background(), l.Mem, old.Key, &store.ReadOptions{Limit: 1 << 20})
	if errors.Is(err, store.ErrNotFound) {
		return 0 // it is merged, and pruned
	} else if err != nil {
		l.Fatal(err)
	}
	f, err := l.w.CreateFile(context.Background(), ".txt", 0)
	if err == nil {
		_, err = f.Write(body)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		l.Fatal(err)
	}
	made := f.File()
	made.Records = old.Records
	switch err := l.w.CommitFiles(context.Background(), manifest.Edit{Add: []manifest.File{made}, Remove: []string{old.Key}}); {
	case errors.Is(err, writer.ErrConflict):
		return 0
	case err != nil:
		l.Fatal(err)
	}
	return 1
}

// TestRemovedMeanwhile: a file that another commit removes while it is being merged stays
// removed, and the others are merged without it.
func TestRemovedMeanwhile(t *testing.T) {
	l := newLines(t)
	keys := l.add(6, 0)
	calls := 0
	r := l.rewriter(func(ctx context.Context, out io.Writer, in []rewrite.Input) (uint64, map[string]string, error) {
		if calls++; calls == 1 {
			if err := l.w.CommitFiles(ctx, manifest.Edit{Remove: keys[5:]}); err != nil {
				t.Error(err)
			}
		}
		return concat(ctx, out, in)
	}, &rewrite.Options{MinFiles: 2, MaxFiles: 6})
	done, err := r.Once(t.Context())
	if err != nil || calls != 2 || len(done) != 1 || len(done[0].Replaced) != 5 {
		t.Errorf("%d calls, %v, %v", calls, done, err)
	}
	l.want(5)
}

// TestRemovedForEver: a rewriter whose files are removed each time gives up at last.
func TestRemovedForEver(t *testing.T) {
	l, other := newLines(t), newLines(t)
	other.add(4, 0)
	r, err := rewrite.New(l.w, other.r, concat, &rewrite.Options{MinFiles: 2}) // two logs, by mistake
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Once(t.Context())
	fixture.WantErr(t, err, writer.ErrConflict, "is not live")
	other.want(4)
}

// TestDeposed: the rewriter of a leader that was replaced changes nothing.
func TestDeposed(t *testing.T) {
	l := newLines(t)
	l.add(4, 0)
	r := l.rewriter(func(ctx context.Context, out io.Writer, in []rewrite.Input) (uint64, map[string]string, error) {
		l.Close(l.Open(nil)) // a successor
		return concat(ctx, out, in)
	}, &rewrite.Options{MinFiles: 2})
	done, err := r.Once(t.Context())
	if !errors.Is(err, writer.ErrFenced) || len(done) > 0 {
		t.Errorf("%v, %v", done, err)
	}
	if files := l.want(4); len(files) != 4 {
		t.Errorf("%d files", len(files))
	}
	fixture.WantErr(t, r.Run(t.Context()), writer.ErrFenced, "")
}

// TestMetaIsCarriedOver: the new file has the entries on which all that it replaces agree, such as the values of
// a partition, and those of the function. So a function needs to know no partitions.
func TestMetaIsCarriedOver(t *testing.T) {
	l := newLines(t)
	for i := range 8 {
		f := l.file(l.w, i)
		f.Meta = map[string]string{"day": strconv.Itoa(i / 4), "row": strconv.Itoa(i), "files": "1"}
		if err := l.w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f}}); err != nil {
			t.Fatal(err)
		}
	}
	byDay := func(f manifest.File) (string, bool) { return f.Meta["day"], true }
	if _, err := l.rewriter(nil, &rewrite.Options{MinFiles: 4, Group: byDay}).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	var days []string
	for _, f := range l.want(8) {
		keys, err := f.Replaces()
		if row, ok := f.Meta["row"]; ok || err != nil || len(keys) != 4 || f.Meta["files"] != "4" {
			t.Errorf("row %q, %d files, %v, %v", row, len(keys), f.Meta, err)
		}
		days = append(days, f.Meta["day"])
	}
	if slices.Sort(days); !slices.Equal(days, []string{"0", "1"}) {
		t.Errorf("the days are %q", days)
	}
}

// TestFunctionFails: a function that fails, or that loses rows, changes nothing.
//
// guard:rewrite-records. An application's function writes the new file of a rewrite, and returns how
// many records it has written. Without this check: the function skips a file whose schema it does not
// know, and returns the number of the records that it has written; the rewrite is committed, and the
// rows of that file are gone from the table.
func TestFunctionFails(t *testing.T) {
	broken := errors.New("a column is not known")
	for name, c := range map[string]struct {
		f    rewrite.Func
		want error
		says string
	}{
		"it fails": {func(_ context.Context, out io.Writer, _ []rewrite.Input) (uint64, map[string]string, error) {
			_, err := io.WriteString(out, "half of it")
			return 0, nil, errors.Join(err, broken)
		}, broken, "merging 4 files into file/"},
		"it loses a file": {func(ctx context.Context, out io.Writer, in []rewrite.Input) (uint64, map[string]string, error) {
			return concat(ctx, out, in[1:])
		}, rewrite.ErrRecords, "has written 3 records into"},
		"its meta is too long": {func(ctx context.Context, out io.Writer, in []rewrite.Input) (uint64, map[string]string, error) {
			n, _, err := concat(ctx, out, in)
			return n, map[string]string{"x": string(make([]byte, 1000))}, err
		}, fence.ErrLimit, "lower Options.MaxFiles"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLines(t)
			l.add(4, 0)
			done, err := l.rewriter(c.f, &rewrite.Options{MinFiles: 2}).Once(t.Context())
			fixture.WantErr(t, err, c.want, c.says)
			if files := l.want(4); len(files) != 4 || len(done) > 0 {
				t.Errorf("%d files, %v", len(files), done)
			}
			if pins := l.Keys("pin/"); len(pins) > 0 {
				t.Errorf("left are %q", pins)
			}
		})
	}
}

// byOffset is concat with ReadAt, as readers of Parquet do it.
func byOffset(_ context.Context, out io.Writer, in []rewrite.Input) (records uint64, meta map[string]string, err error) {
	for _, f := range in {
		if _, err := io.Copy(out, io.NewSectionReader(f.Data, 0, f.Data.Size())); err != nil {
			return 0, nil, err
		}
		records += f.Records
	}
	return records, nil, nil
}

// TestDamagedFile: a file with a wrong byte is not copied into a file with a right checksum, and
// it stays in the table, where verify finds it (guard rewrite-sum). A sound file is read once by
// a function that reads it to its end, and never more than twice.
//
// guard:rewrite-sum. Without this check: a disk flips a bit of a file; the application's function reads
// that file by ReadAt, which checks no checksum; the new file has the wrong row and a checksum that
// fits it; the old file is deleted.
func TestDamagedFile(t *testing.T) {
	for name, f := range map[string]rewrite.Func{"read from the beginning": concat, "read by offset": byOffset} {
		t.Run(name, func(t *testing.T) {
			l := newLines(t)
			keys := l.add(4, 0)
			sound := l.Body(keys[2])
			l.Put(keys[2], []byte("7\n"))
			done, err := l.rewriter(f, &rewrite.Options{MinFiles: 4}).Once(t.Context())
			fixture.WantErr(t, err, fence.ErrCorrupt, keys[2])
			if len(done) > 0 || !l.Has(keys[2]) {
				t.Errorf("done: %v", done)
			}
			l.Put(keys[2], sound)
			if done, err = l.rewriter(f, &rewrite.Options{MinFiles: 4}).Once(t.Context()); err != nil || len(done) != 1 {
				t.Errorf("done: %v, %v", done, err)
			}
			l.want(4)
		})
	}
}

// TestRun merges what comes, and goes on after an error, until its context or its writer ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines(t)
		fail := true
		r := l.rewriter(func(ctx context.Context, out io.Writer, in []rewrite.Input) (uint64, map[string]string, error) {
			if fail {
				fail = false
				return 0, nil, errors.New("once")
			}
			return concat(ctx, out, in)
		}, &rewrite.Options{MinFiles: 4, Interval: time.Minute, Clock: clock.Go()})
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		live := func() int {
			time.Sleep(time.Minute)
			synctest.Wait()
			_, files, err := l.rows(t.Context())
			if err != nil {
				t.Error(err)
			}
			return len(files)
		}
		l.add(3, 0)
		if n := live(); n != 3 {
			t.Errorf("%d files: it does not wait", n)
		}
		l.add(1, 3)
		if n := live(); n != 4 {
			t.Errorf("%d files, although the function failed", n)
		}
		if n := live(); n != 1 {
			t.Errorf("%d files: it gave up", n)
		}
		over := errors.New("over")
		stop(over)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		go func() { ended <- r.Run(t.Context()) }()
		synctest.Wait()
		l.Close(l.w)
		if err := <-ended; !errors.Is(err, writer.ErrClosed) {
			t.Error(err)
		}
		l.want(4)
	})
}

func TestOptions(t *testing.T) {
	l := newLines(t)
	for says, o := range map[string]*rewrite.Options{
		"Target is -1": {Target: -1}, "MinFiles is 1": {MinFiles: 1}, "MaxFiles is 41; it must be from MinFiles 8 to 40": {MaxFiles: 41},
		"MaxFiles is 3": {MaxFiles: 3}, "Interval is -1s": {Interval: -time.Second},
	} {
		_, err := rewrite.New(l.w, l.r, concat, o)
		fixture.WantErr(t, err, rewrite.ErrOptions, says)
	}
	_, err := rewrite.New(l.w, l.r, nil, nil)
	fixture.WantErr(t, err, rewrite.ErrOptions, "and a function")
	if err := (*rewrite.Options)(nil).Validate(); err != nil {
		t.Error(err)
	}
}
