package reader_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// commit adds files with some contents to the table of a log.
func commit(t testing.TB, st store.Store, contents ...[]byte) (all []manifest.File) {
	t.Helper()
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range contents {
		f, err := w.CreateFile(t.Context(), ".parquet", 0)
		if err == nil {
			_, err = f.Write(body)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f.File())
	}
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: all}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return all
}

// look takes a snapshot.
func look(t testing.TB, st store.Store, opts *reader.SnapshotOptions) *reader.Snapshot {
	t.Helper()
	r, err := reader.Open(t.Context(), st, &reader.Options{Settle: &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 30}, Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Snapshot(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func open(t testing.TB, s *reader.Snapshot, f manifest.File) *reader.File {
	t.Helper()
	file, err := s.Open(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestFile: a file can be read in any piece and as a whole, by several at once, although
// requests fail and break off.
func TestFile(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	for _, size := range []int{0, 1, 100, 4<<20 - 1, 4 << 20, 9<<20 + 7} {
		l := l.Fork(t, nil)
		want := fixture.Filled(uint64(size), size)
		f := commit(t, l.Faulty, want)[0]
		s := look(t, l.Faulty, nil)
		file := open(t, s, f)
		if file.Size() != int64(size) {
			t.Errorf("size %d, want %d", file.Size(), size)
		}
		l.Faulty.SetRates(faultstore.Rates{Fail: 0.1, Break: 0.1})
		got, err := io.ReadAll(file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		}
		if n, err := file.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Error("after the end:", n, err)
		}
		var all sync.WaitGroup
		for _, off := range []int{0, 1, 50, 4<<20 - 2, 4 << 20, size - 1, size, size + 1} {
			for _, n := range []int{0, 1, 10, 5 << 20} {
				if off < 0 {
					continue
				}
				all.Go(func() {
					p := bytes.Repeat([]byte{0xaa}, n+1)
					got, err := file.ReadAt(p[:n], int64(off))
					end := min(off+n, size)
					if got != max(end-off, 0) || !bytes.Equal(p[:got], want[min(off, end):end]) || (err == nil) != (got == n) || err != nil && !errors.Is(err, io.EOF) {
						t.Errorf("%d bytes, %d at %d: %d, %v", size, n, off, got, err)
					}
					if p[n] != 0xaa {
						t.Errorf("%d bytes, %d at %d: it wrote beyond the buffer", size, n, off)
					}
				})
			}
		}
		all.Wait()
	}
	small := fixture.Filled(7, 1000)
	f := commit(t, l.Mem, small)[0]
	if err := iotest.TestReader(open(t, look(t, l.Mem, nil), f), small); err != nil {
		t.Error(err)
	}
}

// TestFileRequests: reading costs one request for each 4 MiB, opening none.
func TestFileRequests(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	f := commit(t, l.Mem, fixture.Filled(1, 9<<20))[0]
	file := open(t, look(t, l.Faulty, nil), f)
	gets := func() int { return l.Faulty.Counts().Of(faultstore.Get, "file/") }
	if n := gets(); n != 0 {
		t.Errorf("%d to open", n)
	}
	if _, err := io.Copy(io.Discard, file); err != nil || gets() != 3 {
		t.Errorf("%d to read 9 MiB, %v", gets(), err)
	}
	l.Faulty.ResetCounts()
	if _, err := file.ReadAt(make([]byte, 100), 8<<20-50); err != nil || gets() != 1 {
		t.Errorf("%d to read 100 bytes, %v", gets(), err)
	}
}

// TestFileMemory: a large file is read with a buffer of some 4 MiB.
func TestFileMemory(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	f := commit(t, l.Mem, fixture.Filled(1, 64<<20))[0]
	file := open(t, look(t, l.Mem, nil), f)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n, err := io.Copy(io.Discard, file); n != 64<<20 || err != nil {
		t.Fatal(n, err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 24<<20 {
		t.Errorf("it allocated %d MiB", got>>20)
	}
}

// TestFileErrors name the file.
//
// guard:file-sum. Without this check: a disk flips a bit of a file; a reader copies the file to another
// table; both tables have the wrong row, and nobody is told.
func TestFileErrors(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	all := commit(t, l.Mem, []byte("gone"), []byte("short"), []byte("flipped"), []byte("sound"))
	s := look(t, l.Faulty, nil)
	l.Remove(all[0].Key)
	l.Put(all[1].Key, []byte("sh"))
	l.Put(all[2].Key, []byte("Flipped"))
	for i, says := range []string{"which is pinned, and it is not in mem://", "2 bytes in mem://", "the checksum of file"} {
		file := open(t, s, all[i])
		_, err := io.ReadAll(file)
		fixture.WantErr(t, err, reader.ErrCorrupt, says)
		fixture.WantErr(t, err, reader.ErrCorrupt, all[i].Key)
	}
	_, err := open(t, s, all[1]).ReadAt(make([]byte, 1), 3)
	fixture.WantErr(t, err, reader.ErrCorrupt, all[1].Key+" ends before byte 3")
	_, err = open(t, s, all[3]).ReadAt(make([]byte, 1), -1)
	if err == nil {
		t.Error("a negative offset")
	}
	l.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Get, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	_, err = io.ReadAll(open(t, s, all[3]))
	fixture.WantErr(t, err, store.ErrDenied, all[3].Key)
	l.Faulty.SetHook(nil)
	if _, err := s.Open(t.Context(), manifest.File{}); err == nil {
		t.Error("a file without a name")
	}
	ctx, cancel := context.WithCancel(t.Context())
	file, err := s.Open(ctx, all[3])
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = io.ReadAll(file)
	fixture.WantErr(t, err, context.Canceled, all[3].Key)
	_, err = io.ReadAll(open(t, look(t, l.Mem, &reader.SnapshotOptions{Unpinned: true}), all[0]))
	fixture.WantErr(t, err, reader.ErrGone, "no pin of its own")
}

// TestFileAfterClose: a file that is gone after its snapshot was closed is no damage.
func TestFileAfterClose(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	f := commit(t, l.Mem, []byte("rows"))[0]
	s := look(t, l.Mem, nil)
	file := open(t, s, f)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Remove(f.Key)
	_, err := io.ReadAll(file)
	fixture.WantErr(t, err, reader.ErrGone, "was closed")
	if errors.Is(err, reader.ErrCorrupt) {
		t.Error(err)
	}
}

// TestFilePinLost: a file that is gone after its pin was lost says so.
func TestFilePinLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := logtest.New(t, logtest.Format(), nil)
		f := commit(t, l.Mem, []byte("rows"))[0]
		s := look(t, l.Mem, nil)
		l.Remove(append(l.Keys("pin/"), f.Key)...)
		time.Sleep(2 * time.Minute)
		_, err := io.ReadAll(open(t, s, f))
		fixture.WantErr(t, err, reader.ErrPinLost, f.Key)
	})
}

// TestFileSecondStore: a reader without the second store lists files, and opens none.
func TestFileSecondStore(t *testing.T) {
	st, second := memstore.New(nil), memstore.New(&memstore.Options{Name: "mem://lake"})
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Files: second})
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.CreateFile(t.Context(), ".parquet", 0)
	if err == nil {
		_, err = f.Write([]byte("rows"))
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
	}
	if err == nil {
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []store.Store{nil, second} {
		r, err := reader.Open(t.Context(), st, &reader.Options{Files: given})
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Snapshot(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for f, err := range s.Files(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			file, err := s.Open(t.Context(), f)
			if given == nil {
				fixture.WantErr(t, err, manifest.ErrFiles, "mem://lake; open that one")
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(file); string(got) != "rows" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
