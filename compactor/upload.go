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

// upload is a segment on its way to the store. It begins with its first record.
type upload struct {
	key    string
	first  uint64
	log    fence.ID
	codec  frame.Codec
	put    func(io.Reader) error
	pace   func(ctx context.Context, requests, bytes int64) error
	cancel context.CancelFunc

	w    *segment.Writer
	pipe *io.PipeWriter
	done chan error
}

var errEmpty = errors.New("compactor: nothing to upload")

// upload makes a segment that begins with the record first; hint is the size to be expected.
func (p *pass) upload(ctx context.Context, first uint64, hint int64) *upload {
	ctx, cancel := context.WithCancel(ctx)
	u := &upload{
		key: layout.SegmentKey(layout.Compactor, p.token.Epoch(), uuid.NewString()), first: first,
		log: p.log.Format().Log, codec: p.codec(), cancel: cancel, pace: p.pace,
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

// keeps tells whether an object of the log goes into a segment as it is stored: if its
// records make a block of a good size and are compressed, if that is wanted. Who does
// not want it has them unpacked as well: that costs nothing.
func (p *pass) keeps(h *frame.Header) bool {
	return segment.Whole(h) && h.Codec == p.codec() && h.Codec != frame.Plain
}

// add appends the records of an object of the log or of a block of another segment,
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
			err = fmt.Errorf("compactor: record %d does not follow in %s", stored.Offset, u.key)
		}
		return err
	})
}

// paced begins the upload if there is none, and does something to it.
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
	return u.pace(ctx, after/partSize-before/partSize, max(after-before, 0))
}

func (u *upload) size() int64 {
	if u.w == nil {
		return 0
	}
	return u.w.Size()
}

// wait returns what the store said.
func (u *upload) wait() error { return <-u.done }

// abort ends the upload with nothing visible and waits for it.
func (u *upload) abort(err error) {
	defer u.cancel()
	if u.w != nil {
		_ = u.pipe.CloseWithError(err)
		_ = u.wait() // err is why, whatever the store makes of it
	}
}

// finish completes the segment. It is nil if there was no record.
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
		return nil, fmt.Errorf("compactor: uploading %s: %w", u.key, err)
	}
	return &state.Segment{Key: u.key, First: sum.First, End: sum.End, Size: sum.Size, Index: sum.Index, From: sum.From.UTC(), To: sum.To.UTC()}, nil
}

// publish makes a segment part of the manifest. If that certainly did not happen,
// no manifest that anybody reads names the segment, and it is deleted: rounds that
// go on failing would fill the store. If the update may have taken place, the
// segment is left for the orphans' sweep of the next epoch.
func (p *pass) publish(ctx context.Context, seg *state.Segment, f func(*state.Change) error) (*state.Manifest, error) {
	m, err := p.updater.Update(ctx, f)
	if err == nil {
		return m, nil
	}
	// guard:publish-unknown. An update of unknown outcome may be there, or come.
	//
	//mutant:replace !errors.Is(err, store.ErrUnknown) && =>
	if seg != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, ErrFenced) {
		err = errors.Join(err, store.DeleteAll(ctx, p.st, []string{seg.Key}, p.opts.Settle))
	}
	return nil, fmt.Errorf("compactor: %w", err)
}
