package writer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// create begins a file.
func create(t testing.TB, w *writer.Writer, size int64) *writer.FileWriter {
	t.Helper()
	f, err := w.CreateFile(t.Context(), ".bin", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Abort)
	return f
}

// file makes a whole file.
func (e *env) file(w *writer.Writer, content string) manifest.File {
	e.Helper()
	f := create(e.TB, w, 0)
	if _, err := io.WriteString(f, content); err != nil {
		e.Fatal(err)
	}
	if err := f.Close(); err != nil {
		e.Fatal(err)
	}
	return f.File()
}

// onS3 opens a writer on an S3 endpoint.
func onS3(t *testing.T) (*s3stub.Server, *writer.Writer) {
	t.Helper()
	srv, st := endpoint(t)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Init: quickly, Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abandon(w) })
	return srv, w
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// Files of all sizes, in one request or in parts, also if the reply to the last one
// is lost, which says NoSuchUpload if it is sent again.
func TestT33_Files(t *testing.T) {
	srv, w := onS3(t)
	for name, c := range map[string]struct {
		size  int
		fault s3stub.Op
	}{
		"empty": {}, "small": {size: 100}, "parts": {size: 17 << 20},
		"small, reply lost": {100, s3stub.PutObject}, "parts, reply lost": {17 << 20, s3stub.CompleteMultipartUpload},
	} {
		t.Run(name, func(t *testing.T) {
			if c.fault != "" {
				srv.SetFault(s3stub.Nth(c.fault, 1, s3stub.Lost))
				defer srv.SetFault(nil)
			}
			body := random(c.size)
			f := create(t, w, 0)
			if _, err := io.Copy(f, bytes.NewReader(body)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			f.Abort() // too late
			file := f.File()
			got, found := srv.Object("bucket", file.Key)
			if !found || !bytes.Equal(got, body) || file.Size != int64(c.size) {
				t.Errorf("%s has %d bytes, there are %d", file.Key, file.Size, len(got))
			}
			if epoch, _, ext, ok := layout.ParseFileKey(file.Key); !ok || epoch != 1 || ext != ".bin" {
				t.Errorf("its name is %s", file.Key)
			}
			if n := srv.Uploads(); n != 0 {
				t.Errorf("%d uploads are left", n)
			}
			if err := w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{file}}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The expected size makes the parts larger where 10,000 of the usual size would not
// do.
func TestExpectedSize(t *testing.T) {
	srv, w := onS3(t)
	srv.Reset()
	f := create(t, w, 100<<30)
	if _, err := f.Write(random(20 << 20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := srv.Counts().Of(s3stub.UploadPart); n != 2 {
		t.Errorf("20 MiB of 100 GiB are %d parts", n)
	}
}

// A fenced writer's files end, though nobody writes to them, and so does one that is stopped by its
// term. (Before the next test, which hangs without the guard: Close waits for the files.)
//
// guard:file-until. Without this: the writer is fenced; its uploads go on, and their parts are paid
// for, though no edit can ever add those files; the writer's Close waits for them.
func TestFileOfAFencedWriter(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		until, cancel := context.WithCancel(t.Context())
		a := e.open("a", 1, nil)
		b := e.open("b", 2, &writer.Options{})
		b.Until(until)
		of := func(w *writer.Writer) *writer.FileWriter {
			f := create(t, w, 0)
			if _, err := io.WriteString(f, "half"); err != nil {
				t.Fatal(err)
			}
			return f
		}
		fa, fb := of(a), of(b)
		e.outcomes(e.several(a, "lost"), "not")
		synctest.Wait()
		if _, err := io.WriteString(fa, "more"); !errors.Is(err, writer.ErrFenced) {
			t.Errorf("a write to the file of a fenced writer: %v", err)
		}
		if err := fa.Close(); !errors.Is(err, writer.ErrFenced) {
			t.Errorf("the file of a fenced writer: %v", err)
		}
		cancel()
		<-b.Done()
		if err := fb.Close(); !errors.Is(err, writer.ErrClosed) {
			t.Errorf("the file of a writer whose term is over: %v", err)
		}
		for _, w := range []*writer.Writer{a, b} {
			if _, err := w.CreateFile(t.Context(), "", 0); err == nil || !errors.Is(err, w.Err()) {
				t.Errorf("a file of a stopped writer: %v", err)
			}
		}
		e.noFiles()
	})
}

// However a file is aborted, its parts are deleted before the caller is told, and
// nothing of it is seen.
func TestFileGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *writer.Writer, f *writer.FileWriter, cancel context.CancelCauseFunc)
		want error
	}{
		"aborted":   {func(_ *writer.Writer, f *writer.FileWriter, _ context.CancelCauseFunc) { f.Abort() }, writer.ErrAborted},
		"cancelled": {func(_ *writer.Writer, _ *writer.FileWriter, cancel context.CancelCauseFunc) { cancel(errBored) }, errBored},
		"EOF":       {func(_ *writer.Writer, _ *writer.FileWriter, cancel context.CancelCauseFunc) { cancel(io.EOF) }, io.EOF},
		// guard:file-until.
		"closed": {func(w *writer.Writer, _ *writer.FileWriter, _ context.CancelCauseFunc) {
			if err := w.Close(context.Background()); err != nil {
				panic(err)
			}
		}, writer.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			srv, w := onS3(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			f, err := w.CreateFile(ctx, ".bin", 0)
			if err != nil {
				t.Fatal(err)
			}
			body := random(17 << 20)
			if _, err := f.Write(body); err != nil {
				t.Fatal(err)
			}
			c.end(w, f, cancel)
			if err := f.Close(); !errors.Is(err, c.want) {
				t.Errorf("Close: %v", err)
			}
			if _, err := f.Write(body); !errors.Is(err, c.want) || !strings.Contains(err.Error(), f.Key()) {
				t.Errorf("Write: %v", err)
			}
			if file := f.File(); file.Key != "" || file.Size != 0 {
				t.Errorf("File returns %+v", file)
			}
			key := f.Key()
			if _, found := srv.Object("bucket", key); found || srv.Uploads() != 0 {
				t.Errorf("%s is there: %t; %d uploads are left", key, found, srv.Uploads())
			}
			err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{{Key: key, Size: int64(len(body))}}})
			if kind(err) != "not" || !errors.Is(err, writer.ErrConflict) && !errors.Is(err, writer.ErrClosed) {
				t.Errorf("it was committed: %v", err)
			}
		})
	}
}

var errBored = errors.New("bored")

// A file is closed right after its context has ended. Whoever breaks the upload off may come second;
// the file is not completed all the same.
//
// guard:file-ended. Without this check: the writer is fenced, and aborts the file; the upload has not
// noticed that yet; the application closes the file; the upload ends well, and Close returns nil for a
// file that no edit can add.
func TestFileClosedAfterItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		for range 200 {
			ctx, cancel := context.WithCancelCause(t.Context())
			f, err := w.CreateFile(ctx, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(f, "half"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the upload waits for more
			cancel(errBored)
			if err := f.Close(); !errors.Is(err, errBored) {
				t.Fatalf("Close: %v", err)
			}
		}
		e.noFiles()
	})
}

// noFiles fails the test if there are files in the store.
func (e *env) noFiles() {
	e.Helper()
	for info, err := range e.Mem.List(e.Context(), "file/", nil) {
		e.Errorf("there is %s, %v", info.Key, err)
	}
}

// Write waits for the store, and hears what it failed with.
func TestFileWaitsForTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Upload, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		f := create(t, w, 0)
		if _, err := f.Write([]byte("x")); !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "writer: file file/") {
			t.Errorf("Write: %v", err)
		}
		if err := f.Close(); !errors.Is(err, store.ErrDenied) {
			t.Errorf("Close: %v", err)
		}
		release := e.hold("a", faultstore.Upload, "file/")
		f = create(t, w, 0)
		wrote := make(chan error, 1)
		go func() {
			_, err := f.Write([]byte("x"))
			wrote <- err
		}()
		synctest.Wait()
		if len(wrote) != 0 {
			t.Fatal("a write was taken before the store was there")
		}
		release()
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	})
}

// A file in the making is none, nobody waits for it, and no edit takes it. Once it is
// whole nothing can be written to it.
func TestFileBeforeClose(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		f := create(t, w, 0)
		if _, err := io.WriteString(f, "x"); err != nil {
			t.Fatal(err)
		}
		file := f.File()
		if file.Key != "" || file.Size != 0 {
			t.Errorf("File returns %+v", file)
		}
		err := w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{file}})
		if kind(err) != "not" || !strings.Contains(err.Error(), "has no key") {
			t.Errorf("it was committed: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if file := f.File(); file.Key != f.Key() || file.Size != 1 {
			t.Errorf("File returns %+v", file)
		}
		if n, err := f.Write([]byte("x")); n != 0 || !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), f.Key()) {
			t.Errorf("a write after the end: %d, %v", n, err)
		}
	})
}

// The store is asked to refuse what is there.
//
// guard:file-create. Without this condition: a snapshot of a running machine is started twice; leader A
// and its double are in the same epoch, and draw the same UUID for a file; the double's upload replaces
// A's file; readers of A's file get other bytes.
func TestFileIsCreated(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		var cond store.Condition
		e.before("a", faultstore.Upload, "file/", func(op faultstore.Op) bool {
			cond = op.Cond
			return true
		})
		e.file(w, "x")
		if cond != store.IfAbsent() {
			t.Errorf("the condition was %v", cond)
		}
	})
}

func TestFileExtensions(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		for _, ext := range []string{"parquet", ".", "/", "./x", "..\\x", ".a b", "." + strings.Repeat("x", 32), ".é", "0.x"} {
			if _, err := w.CreateFile(t.Context(), ext, 0); err == nil || !strings.Contains(err.Error(), "extension") {
				t.Errorf("%q: %v", ext, err)
			}
		}
		for _, ext := range []string{"", ".parquet", ".tar.gz", "." + strings.Repeat("x", 31)} {
			f, err := w.CreateFile(t.Context(), ext, 0)
			if err != nil {
				t.Errorf("%q: %v", ext, err)
				continue
			}
			f.Abort()
		}
		if _, err := w.CreateFile(t.Context(), "", -1); err == nil {
			t.Error("a negative size was taken")
		}
	})
}
