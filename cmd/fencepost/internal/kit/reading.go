package kit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// Ahead is the error of an offset that the log has not reached. The offset is probably from
// another log, and to print nothing would look like success.
func Ahead(from, end uint64) error {
	return fmt.Errorf("not there yet: offset %d; the log ends at %d", from, end)
}

// Reader opens a reader of the log at a URL.
func (k *Kit) Reader(ctx context.Context, url string) (*reader.Reader, error) {
	st, err := k.LogStore(ctx, url)
	if err != nil {
		return nil, err
	}
	return reader.Open(ctx, st, &reader.Options{Hooks: k.Gauges.reader(reader.Hooks{})})
}

// Follower opens a reader that a leader tells of what it commits, if the leader has announced where.
func (k *Kit) Follower(ctx context.Context, url string) (*reader.Reader, error) {
	st, err := k.LogStore(ctx, url)
	if err != nil {
		return nil, err
	}
	return reader.Open(ctx, st, &reader.Options{Hooks: k.Gauges.reader(reader.Hooks{}), Push: push.Source(st, nil)})
}

// Snapshot takes a snapshot of a version, 0 for the end of the log, without a pin if this process may not write one.
func (k *Kit) Snapshot(ctx context.Context, r *reader.Reader, version uint64, what string) (*reader.Snapshot, error) {
	o := &reader.SnapshotOptions{Version: version, Name: "fencepost " + what}
	s, err := r.Snapshot(ctx, o)
	if !errors.Is(err, store.ErrDenied) {
		return s, err
	}
	o.Unpinned = true
	s, uerr := r.Snapshot(ctx, o)
	if uerr != nil {
		return nil, uerr
	}
	k.Console.Note("not allowed to write a pin: what this command reads may be deleted after the log's grace period")
	return s, nil
}

// Release closes a snapshot, also when ctx has ended.
func (k *Kit) Release(ctx context.Context, s *reader.Snapshot) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		k.Console.Note("the pin could not be deleted; it lapses by itself: %s", Line(err))
	}
}

// NotBefore returns the offset of the first record that is not before a time; 0 if all
// records are later.
//
// A time beyond tomorrow is a slip: taken as it is, it would mean the end of the log as it
// happens to be now, and give up everything. Clocks of writers may differ by a day.
func NotBefore(ctx context.Context, r *reader.Reader, t time.Time) (uint64, error) {
	if t.After(time.Now().Add(24 * time.Hour)) {
		return 0, Usage("%s lies in the future; the records that come until then are not there yet", t.UTC().Format(time.RFC3339))
	}
	// The first record that is later than the instant before t.
	offset, err := r.After(ctx, t.Add(-time.Microsecond))
	if errors.Is(err, reader.ErrGone) {
		return 0, nil
	}
	return offset, err
}
