package writer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// FileWriter writes a file below file/ that a commit can add to the table: a Parquet file,
// an SSTable. Write and Close are for one goroutine; Abort may be called by any.
type FileWriter struct {
	key    string
	pipe   *io.PipeWriter
	cancel context.CancelCauseFunc
	ended  func() error  // why it was aborted, or nil
	done   chan struct{} // closed when the upload has ended
	closed sync.Once

	// Set when it has ended.
	file manifest.File
	err  error
}

// CreateFile begins a file with a new name that ends in ext: empty, or a dot and up to 31
// letters, digits, dots, hyphens and underscores. What is written streams to the store, in
// parts if it is large, with bounded memory. Nobody sees the file before Close has returned
// nil, and it is part of the table only when [Writer.CommitFiles] has added it.
//
// size is how large the file will be, in bytes, about; 0 if nobody knows. A store allows so
// many parts per upload; a file that needs more gets larger parts, and fewer are in flight at
// once. S3 allows 10,000 parts, of 8 MiB by default, which is 78 GiB: say it from 60 GiB on.
//
// Close or abort every file. ctx bounds the file until it is closed. When the writer is
// fenced or closed, the file is aborted. An aborted file leaves no parts (but see package
// s3store). The compactor deletes a complete file that was not added, once the epoch has
// ended.
//
// Errors: [ErrFenced], [ErrClosed] or what [Writer.Err] says. Write and Close fail with
// manifest.ErrFiles if the writer was given the store for files of another log.
func (w *Writer) CreateFile(ctx context.Context, ext string, size int64) (*FileWriter, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	key := layout.FileKey(w.token.Epoch(), id.String(), ext)
	if _, _, got, ok := layout.ParseFileKey(key); !ok || got != ext {
		return nil, fmt.Errorf("writer: %q cannot be the extension of a file: use nothing, or a dot and up to %d letters, digits, dots, hyphens and underscores", ext, layout.MaxExt-1)
	}
	if size < 0 {
		return nil, fmt.Errorf("writer: a file of %d bytes cannot be: give its size, about, or 0", size)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	body, pipe := io.Pipe()
	f := &FileWriter{key: key, pipe: pipe, cancel: cancel, ended: func() error { return context.Cause(ctx) }, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.err != nil {
		cancel(w.life.err)
		return nil, w.life.err
	}
	w.files[f] = struct{}{}
	w.tasks.Go(func() { w.upload(ctx, f, body, &store.UploadOptions{SizeHint: size}) })
	return f, nil
}

// upload streams one file until it is complete or aborted.
func (w *Writer) upload(ctx context.Context, f *FileWriter, body *io.PipeReader, opts *store.UploadOptions) {
	defer close(f.done)
	// The upload may be waiting for a Write that never comes. The cause is wrapped, because
	// io.EOF itself would look like the end of a complete file.
	broken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(broken)
		f.pipe.CloseWithError(f.failed(context.Cause(ctx)))
	})
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var info store.Info
	st, err := w.fileStore(ctx)
	if err == nil {
		info, err = store.UploadNew(ctx, st, f.key, io.TeeReader(body, sum), opts, w.opts.Settle)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if !stop() {
		<-broken
	}
	f.cancel(errOver)
	f.file = manifest.File{Key: f.key, Size: info.Size, CRC32C: sum.Sum32()}
	if err != nil {
		f.err = f.failed(err)
	}
	_ = body.CloseWithError(f.err) // never fails; it ends a Write that waits
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, f)
	if f.err == nil {
		if w.hedge != nil {
			w.hedge.Others.Add(1)
		}
		w.completed[f.key] = f.file
	}
}

// fileStore returns the store for files. The first time it checks that it is the log's. That
// does not delay Open: while a second store is down, the log goes on without files.
func (w *Writer) fileStore(ctx context.Context) (store.Store, error) {
	if w.marked.Load() {
		return w.log.FileStore()
	}
	st, err := w.log.CheckFiles(ctx, false)
	if err == nil {
		w.marked.Store(true)
	}
	return st, err
}

func (f *FileWriter) failed(err error) error { return fmt.Errorf("writer: file %s: %w", f.key, err) }

// errOver ends the context of an upload that has ended by itself.
var errOver = errors.New("writer: the upload has ended")

// Write implements [io.Writer]. It waits while the store is slower than the caller. Its
// error says what ended the file: [ErrFenced], [ErrClosed], [ErrAborted], the cause of
// CreateFile's context, the store's error, or fs.ErrClosed after Close.
func (f *FileWriter) Write(p []byte) (int, error) {
	n, err := f.pipe.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = f.why() // the pipe does not tell its writer why
	}
	return n, err
}

// why returns why nothing more can be written.
func (f *FileWriter) why() error {
	cause := f.ended()
	if cause == nil || errors.Is(cause, errOver) {
		<-f.done // it was closed, so this is soon
		if cause = f.err; cause != nil {
			return cause
		}
		cause = fs.ErrClosed
	}
	return f.failed(cause)
}

// Close completes the file. When it returns nil, the file is durable. After an error the
// file is aborted, and the same bytes can be written to a new one. Close may be called
// again, also after Abort, and returns the same.
func (f *FileWriter) Close() error {
	f.closed.Do(func() {
		// guard:file-ended. Close does not complete a file that was aborted.
		if cause := f.ended(); cause != nil {
			f.pipe.CloseWithError(f.failed(cause))
			return
		}
		_ = f.pipe.Close() // never fails
	})
	<-f.done
	return f.err
}

// Abort aborts the file, unless it is complete, and waits until its parts are deleted.
func (f *FileWriter) Abort() {
	f.cancel(ErrAborted)
	<-f.done
}

// Key returns the file's name. An object of that name exists only once Close has returned
// nil.
func (f *FileWriter) Key() string { return f.key }

// File returns the file for an edit, once Close has returned nil. Records and Meta are left
// for the caller. Before that, and if Close has failed, it returns the zero File, which no
// edit takes.
func (f *FileWriter) File() manifest.File {
	select {
	case <-f.done:
		if f.err == nil {
			return f.file
		}
	default:
	}
	return manifest.File{}
}
