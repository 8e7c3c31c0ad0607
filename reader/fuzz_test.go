package reader_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// under is each prefix that a log has, with the rest of a key.
var under = []string{
	"format.json", "lock/00000000000000000009.json", "compactor-lock/00000000000000000001.json",
	"data/00000000000000000009/00000000000000000001", "data/00000000000000000001/00000000000000000099", "data/x",
	"manifest/00000000000000000099.json", "manifest/00000000000000000001.json", "manifest/x",
	"segment/compactor/00000000000000000001/00000000-0000-4000-8000-000000000001", "segment/x",
	"list/writer/00000000000000000001/00000000-0000-4000-8000-000000000001",
	"pin/00000000-0000-4000-8000-000000000001.json", "file/00000000000000000001/00000000-0000-4000-8000-000000000001.parquet",
	"tmp/00000000-0000-4000-8000-000000000001", "x",
}

// foldedInPart makes a log with records and files, two of its leaderships in segments and
// the rest not.
func foldedInPart(t *testing.T) (base *world) {
	inTable(t, 0, func(w *table) {
		w.story(func(i int) {
			if i == 1 {
				w.compact(8)
			}
		})
		w.takeOver()
		base = w.world
	})
	return base
}

// Whatever an object holds, reading ends, nothing panics, and no record comes that is not
// the log's own, at its own offset. The log ends where it does, or there is an error.
// (Manifests, their lists and the format carry no checksum: what is put in their place may
// describe another log.) That also holds after a writer and a compactor have worked on it.
func FuzzGarbage(f *testing.F) {
	for i := range under {
		f.Add(uint8(0), uint8(i), uint16(0), []byte("garbage"))
	}
	for i := 0; i < 60; i += 3 {
		f.Add(uint8(1), uint8(i), uint16(0), []byte{})
		f.Add(uint8(2), uint8(i+1), uint16(40), []byte{0xff})
		f.Add(uint8(3), uint8(i+2), uint16(i), []byte{})
	}
	var once sync.Once // one log for all inputs
	var base *world
	var keys []string
	f.Fuzz(func(t *testing.T, how, which uint8, at uint16, garbage []byte) {
		once.Do(func() { base = foldedInPart(t); keys = base.Keys("") })
		old := keys[int(which)%len(keys)]
		key, body := old, garbage
		switch how % 4 {
		case 0: // a new object, or one in the place of the format
			key = under[int(which)%len(under)]
		case 1: // in the place of one
		case 2: // one is damaged
			body = bytes.Clone(base.Body(old))
			if len(body) > 0 {
				copy(body[int(at)%len(body):], garbage)
			}
		case 3: // one is in the place of another
			body = base.Body(keys[int(at)%len(keys)])
		}
		bare := key == layout.FormatKey || strings.HasPrefix(key, layout.ManifestPrefix) || strings.HasPrefix(key, "list/")
		synctest.Test(t, func(t *testing.T) {
			w := worldOf(base.Fork(t, nil))
			w.Put(key, body)
			if err := w.garbled(bare); err != nil {
				t.Fatalf("%q in %s: %v", body, key, err)
			}
			w.disturb()
			if err := w.garbled(bare); err != nil {
				t.Fatalf("%q in %s, after a writer and a compactor: %v", body, key, err)
			}
		})
	})
}

// garbled reads all that there is to read. Bare: what is read may be another log.
func (w *world) garbled(bare bool) error {
	ctx := w.atMost(10_000)
	defer w.Faulty.SetBefore(nil)
	r, err := reader.Open(ctx, w.Faulty.Client("reader"), &reader.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		return w.sane(ctx, err, bare)
	}
	for _, from := range []uint64{0, uint64(len(w.History()) / 2)} {
		if err := w.sameRecords(ctx, r.Read(ctx, from), from, len(w.History()), bare); err != nil {
			return fmt.Errorf("from %d: %w", from, err)
		}
	}
	for _, version := range []uint64{0, 1} {
		s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Version: version, Unpinned: true})
		if err != nil {
			if err := w.sane(ctx, err, bare); err != nil {
				return fmt.Errorf("snapshot of version %d: %w", version, err)
			}
			continue
		}
		from, end := s.First(), s.End()
		if !bare && end > uint64(len(w.History())) {
			return fmt.Errorf("snapshot of version %d ends at %d", version, end)
		}
		if !bare && from < end {
			if err := w.sameRecords(ctx, s.Records(ctx, from), from, int(end), bare); err != nil {
				return fmt.Errorf("snapshot of version %d: %w", version, err)
			}
		}
		for _, err := range s.Files(ctx) {
			if err != nil {
				if err := w.sane(ctx, err, bare); err != nil {
					return fmt.Errorf("files of version %d: %w", version, err)
				}
				break
			}
		}
		_ = s.Close(ctx)
	}
	return nil
}

func (w *world) sameRecords(ctx context.Context, records func(func(reader.Record, error) bool), next uint64, end int, bare bool) error {
	n := 0
	for rec, err := range records {
		if err != nil {
			return w.sane(ctx, err, bare)
		}
		if n++; bare && n > 1000 {
			return nil
		}
		if bare {
			continue
		}
		if rec.Offset != next || next >= uint64(len(w.History())) || string(rec.Value) != w.History()[next] {
			return fmt.Errorf("record %d is %q; want record %d", rec.Offset, rec.Value, next)
		}
		next++
	}
	if !bare && next != uint64(end) {
		return fmt.Errorf("it ends at %d without an error, want %d", next, end)
	}
	return nil
}

// sane returns nil if an error is one of those that a damaged log may give.
func (w *world) sane(ctx context.Context, err error, bare bool) error {
	for _, kind := range []error{reader.ErrCorrupt, reader.ErrFormat, fence.ErrLimit, reader.ErrGone, store.ErrNotFound, store.ErrTooLarge, manifest.ErrNotInitialized} {
		if errors.Is(err, kind) && ctx.Err() == nil {
			return nil
		}
	}
	return err
}

// disturb lets a writer open the log and append nothing, and a compactor do its work.
// Either may fail.
func (w *world) disturb() {
	ctx := w.atMost(10_000)
	defer w.Faulty.SetBefore(nil)
	st := w.Faulty.Client("others")
	w.Epoch++
	if wr, err := writer.Open(ctx, st, fence.NewToken(w.Epoch), &writer.Options{Settle: logtest.Quick, Clock: clock.Go()}); err == nil {
		_ = wr.Close(ctx)
	}
	w.Token++
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(w.Token), FanIn: 2, SegmentBytes: 4096, Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	_, _ = c.Once(ctx)
	if ctx.Err() != nil {
		w.Fatal(context.Cause(ctx))
	}
}
