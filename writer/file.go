package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// FileWriter writes a file below file/ that a commit can add: a Parquet file, an
// SSTable. Write and Close are for one goroutine; Abort may be called by any.
type FileWriter struct {
	key    string
	pipe   *io.PipeWriter
	cancel context.CancelCauseFunc
	ended  func() error  // why it was given up, or nil
	done   chan struct{} // closed when the upload is over
	closed sync.Once

	info store.Info // once it is over
	err  error
}

// FileOption is a property of a file to come.
type FileOption struct{ size int64 }

// ExpectedSize tells about how large the file will be, in bytes. One that needs more
// parts than the store allows gets larger ones, of which fewer are under way at once:
// S3's 10,000 parts of 8 MiB are 78 GiB, so it matters from some 60 GiB on. Smaller
// files need it not.
func ExpectedSize(bytes int64) FileOption { return FileOption{size: bytes} }

// CreateFile begins a file with a new name, which ends in ext: empty, or a dot and
// up to 31 letters, digits, dots, hyphens and underscores. What is written streams
// to the store, in parts if it is large, with bounded memory; nobody sees it before
// Close has returned nil, and it is part of the table only when [Writer.CommitFiles]
// has added it.
//
// Ctx bounds the file until it is closed, and so does the writer: when that is
// fenced or closed the file is given up. A file that is given up leaves no parts
// behind (but see package s3store); a complete one that is never added is removed
// by the compactor once the epoch is over.
//
// Every file must be closed or aborted. Errors: [ErrFenced], [ErrClosed] or the
// reason of [Writer.Err].
func (w *Writer) CreateFile(ctx context.Context, ext string, opts ...FileOption) (*FileWriter, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("writer: %w", err)
	}
	key := layout.FileKey(w.token.Epoch(), id.String(), ext)
	if _, _, got, ok := layout.ParseFileKey(key); !ok || got != ext {
		return nil, fmt.Errorf("writer: %q cannot be the extension of a file: it is empty, or a dot and up to %d letters, digits, dots, hyphens and underscores", ext, layout.MaxExt-1)
	}
	upload := &store.UploadOptions{}
	for _, o := range opts {
		if o.size < 0 {
			return nil, fmt.Errorf("writer: a file cannot be expected to have %d bytes", o.size)
		}
		upload.SizeHint = o.size
	}
	ctx, cancel := context.WithCancelCause(ctx)
	body, pipe := io.Pipe()
	f := &FileWriter{key: key, pipe: pipe, cancel: cancel, ended: func() error { return context.Cause(ctx) }, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		cancel(w.err)
		return nil, w.err
	}
	w.files[f] = struct{}{}
	w.tasks.Go(func() { w.upload(ctx, f, body, upload) })
	return f, nil
}

// upload streams one file until it is complete or given up.
func (w *Writer) upload(ctx context.Context, f *FileWriter, body *io.PipeReader, opts *store.UploadOptions) {
	defer close(f.done)
	// The upload may be waiting for the next Write, which may never come. The cause
	// is wrapped: io.EOF itself would look like the end of a whole file.
	broken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(broken)
		f.pipe.CloseWithError(f.failed(context.Cause(ctx)))
	})
	info, err := store.UploadNew(ctx, w.st, f.key, body, opts, w.opts.Settle)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if !stop() {
		<-broken
	}
	f.cancel(errOver)
	f.info = info
	if err != nil {
		f.err = f.failed(err)
	}
	_ = body.CloseWithError(f.err) // never fails; what is still being written hears of it
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, f)
	if f.err == nil {
		w.completed[f.key] = info.Size
	}
}

func (f *FileWriter) failed(err error) error { return fmt.Errorf("writer: file %s: %w", f.key, err) }

// errOver ends the context of an upload that has ended by itself.
var errOver = errors.New("writer: the upload is over")

// Write implements [io.Writer]. It waits while the store is slower than the caller.
// Its error says what ended the file: [ErrFenced], [ErrClosed], [ErrAborted], the
// cause of CreateFile's context, what the store failed with; or fs.ErrClosed after
// Close.
func (f *FileWriter) Write(p []byte) (int, error) {
	n, err := f.pipe.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = f.why() // the pipe keeps its writer's own reason to itself
	}
	return n, err
}

// why is the reason for which nothing more can be written.
func (f *FileWriter) why() error {
	cause := f.ended()
	if cause == nil || errors.Is(cause, errOver) {
		<-f.done // it was closed, so this is a matter of moments
		if cause = f.err; cause != nil {
			return cause
		}
		cause = fs.ErrClosed
	}
	return f.failed(cause)
}

// Close completes the file, which is durable when it returns nil. After an error it
// is given up: the same bytes can be written to a new one. Close may be called
// again, also after Abort, and returns the same.
func (f *FileWriter) Close() error {
	f.closed.Do(func() {
		// guard:file-ended. What was given up is not completed, though whoever breaks
		// the upload off may not have come so far.
		if cause := f.ended(); cause != nil {
			f.pipe.CloseWithError(f.failed(cause))
			return
		}
		_ = f.pipe.Close() // never fails
	})
	<-f.done
	return f.err
}

// Abort gives the file up, unless it is complete, and waits until its parts are
// removed.
func (f *FileWriter) Abort() {
	f.cancel(ErrAborted)
	<-f.done
}

// Key is the file's name. There is an object of that name only once Close has returned
// nil.
func (f *FileWriter) Key() string { return f.key }

// File returns the file for an edit, once Close has returned nil. Records and Meta
// are the caller's to fill in. Before that, and if Close has failed, there is no
// file: it returns the zero File, which no edit takes.
func (f *FileWriter) File() manifest.File {
	select {
	case <-f.done:
		if f.err == nil {
			return manifest.File{Key: f.key, Size: f.info.Size}
		}
	default:
	}
	return manifest.File{}
}
