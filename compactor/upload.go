package compactor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// partSize is about how much of a segment one request writes.
const partSize = 8 << 20

// upload is a segment on its way to the store. The request begins with the first record.
type upload struct {
	key    string
	first  uint64
	log    fence.ID
	codec  frame.Codec
	put    func(io.Reader) error
	pacer  *pacer
	cancel context.CancelFunc

	w    *segment.Writer
	pipe *io.PipeWriter
	done chan error
}

var errEmpty = errors.New("compactor: nothing to upload")

// upload prepares a segment that begins with record number first. It will have about hint
// bytes.
func (p *pass) upload(ctx context.Context, first uint64, hint int64) *upload {
	ctx, cancel := context.WithCancel(ctx)
	u := &upload{
		key: layout.SegmentKey(layout.Compactor, p.token.Epoch(), uuid.NewString()), first: first,
		log: p.log.Format().Log, codec: p.codec(), cancel: cancel, pacer: p.pacer,
	}
	u.put = func(r io.Reader) error {
		_, err := store.UploadNew(ctx, p.st, u.key, r, &store.UploadOptions{SizeHint: hint}, p.opts.Settle)
		return err
	}
	return u
}

// codec is how records are stored in segments.
func (c *Compactor) codec() frame.Codec {
	if c.opts.NoCompress {
		return frame.Plain
	}
	return frame.Zstd
}

// keeps tells whether a log object is copied into the segment as it is stored: its records
// must make a block of a good size, compressed as the segment is to be. Records that are
// not compressed are unpacked, which costs nothing.
func (p *pass) keeps(h *frame.Header) bool {
	return segment.Whole(h) && h.Codec == p.codec() && h.Codec != frame.Plain
}

// add appends the records of a log object or of another segment's block. They are copied
// as they are stored if stored is not nil.
func (u *upload) add(ctx context.Context, f *frame.Frame, stored *frame.Stored) error {
	if stored == nil && f.Records == 0 {
		return nil
	}
	return u.paced(ctx, func() error {
		if stored == nil && f.Codec == u.codec {
			if ok, err := u.w.AddStored(f.Stored()); ok || err != nil {
				return err
			}
		}
		if stored == nil {
			return u.w.Add(f)
		}
		ok, err := u.w.AddStored(stored)
		if !ok && err == nil {
			err = fmt.Errorf("record %d is not the next one of %s", stored.Offset, u.key)
		}
		return err
	})
}

// paced starts the request if there is none yet, adds something, and waits as long as the
// limits say.
func (u *upload) paced(ctx context.Context, add func() error) error {
	if u.w == nil {
		r, w := io.Pipe()
		u.pipe, u.done = w, make(chan error, 1)
		u.w = segment.NewWriter(w, u.log, u.first, u.codec)
		go func() {
			err := u.put(r)
			// Unblocks the writer if the store gave up early.
			_ = r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
			u.done <- err
		}()
	}
	before := u.w.Size()
	if err := add(); err != nil {
		return err
	}
	after := u.w.Size()
	u.pacer.sent(after/partSize - before/partSize)
	return u.pacer.pace(ctx, max(after-before, 0))
}

func (u *upload) size() int64 {
	if u.w == nil {
		return 0
	}
	return u.w.Size()
}

// wait returns the store's answer.
func (u *upload) wait() error { return <-u.done }

// abort ends the upload, so that no object appears, and waits for it.
func (u *upload) abort(err error) {
	defer u.cancel()
	if u.w != nil {
		_ = u.pipe.CloseWithError(err)
		_ = u.wait() // the caller reports err, whatever the store's answer is
	}
}

// finish completes the segment. It returns nil if there was no record.
func (u *upload) finish() (*state.Segment, error) {
	defer u.cancel()
	if u.w == nil {
		return nil, nil
	}
	sum, err := u.w.Close()
	if err != nil {
		_ = u.pipe.CloseWithError(err)
		return nil, errors.Join(err, u.wait())
	}
	_ = u.pipe.Close()
	if err := u.wait(); err != nil {
		return nil, fmt.Errorf("uploading %s: %w", u.key, err)
	}
	return &state.Segment{Key: u.key, First: sum.First, End: sum.End, Size: sum.Size, Index: sum.Index, From: sum.From.UTC(), To: sum.To.UTC()}, nil
}

// publish makes a segment part of the manifest. If that certainly did not happen, no
// manifest will ever name the segment, and it is deleted: otherwise rounds that fail again
// and again would fill the store. If it may have happened, the segment stays; a compactor
// of a later epoch deletes it if it is an orphan.
func (p *pass) publish(ctx context.Context, seg *state.Segment, f func(*state.Change) error) (*state.Manifest, error) {
	m, err := p.updater.Update(ctx, f)
	if err == nil {
		return m, nil
	}
	// guard:publish-unknown. A segment is not deleted if the outcome of the update that names it is
	// unknown.
	//
	//mutant:replace !errors.Is(err, store.ErrUnknown) && =>
	if seg != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, ErrFenced) {
		err = errors.Join(err, store.DeleteAll(ctx, p.st, []string{seg.Key}, p.opts.Settle))
	}
	return nil, err
}
