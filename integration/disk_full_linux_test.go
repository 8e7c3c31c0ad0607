//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/sim"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// TestDiskFull fills the disk of a log in a directory, first with bytes, then with
// inodes. No append is acknowledged that is not in the log, and all records stay
// readable. When there is room again, from outside or by compaction, the log continues.
func TestDiskFull(t *testing.T) {
	for _, what := range []string{"bytes", "inodes"} {
		t.Run(what, func(t *testing.T) {
			if err := withDisks(t, nil, func(t *testing.T, mount func() *disk) { diskFull(t, mount(), what) }); err != nil {
				t.Skip(err)
			}
		})
	}
}

func diskFull(t *testing.T, d *disk, what string) {
	l := &fullLog{t: t, disk: d, what: what, hit: make(chan struct{}, 1)}
	var err error
	l.Store, err = store.Open(t.Context(), l.disk.url("log"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Init(t.Context(), l, &manifest.InitOptions{Grace: manifest.MinGrace}); err != nil {
		t.Fatal(err)
	}
	l.writerWaits()
	l.othersRead()
	l.compactionFrees()
}

func (l *fullLog) writerWaits() {
	// Room appears while the writer retries: all appends are committed.
	w := l.open(1)
	for range 10 {
		l.append(w, 100)()
	}
	l.fill(0)
	waits := []func(){l.append(w, 5000), l.append(w, 5000), l.append(w, 5000)}
	l.awaitFull(3)
	l.room()
	for _, wait := range waits {
		wait()
	}
	if n := l.acked(); n != 13 {
		l.t.Errorf("%d records are acknowledged after there was room again, want 13", n)
	}

	// The writer is closed on a full disk: none of its appends is acknowledged.
	l.fill(0)
	waits = []func(){l.append(w, 5000), l.append(w, 5000)}
	l.awaitFull(3)
	stopped, stop := context.WithCancel(l.t.Context())
	stop()
	if err := w.Close(stopped); !errors.Is(err, syscall.ENOSPC) {
		l.t.Errorf("Close on a full disk does not say why: %v", err)
	}
	for _, wait := range waits {
		wait()
	}
	if n := l.acked(); n != 13 {
		l.t.Errorf("%d records are acknowledged after Close on a full disk, want 13", n)
	}
}

// othersRead checks that other processes can read all records of a log on a full disk, but
// change nothing.
func (l *fullLog) othersRead() {
	l.check()
	l.tryFull("opening a writer", func(ctx context.Context) error {
		_, err := writer.Open(ctx, l, fence.NewToken(2), l.options())
		return err
	})
	l.tryFull("compaction", func(ctx context.Context) error {
		_, err := l.compactor(1).Once(ctx)
		return err
	})
	l.check()
	l.room()
}

// compactionFrees lets the log itself fill the disk. With a little more room, compaction
// frees space, and the writer's retries succeed.
func (l *fullLog) compactionFrees() {
	w := l.open(3)
	l.check()
	l.fill(map[string]uint64{"bytes": 2 << 20, "inodes": 700}[l.what])
	l.forget()
	var wait func()
	for full := false; !full; {
		var f writer.Future
		f, wait = l.begin(w, 8000)
		select {
		case <-f.Done():
			wait()
		case <-l.hit:
			full = true
		}
	}
	l.fill(map[string]uint64{"bytes": 256 << 10, "inodes": 300}[l.what])
	c := l.compactor(2)
	for pruned := 0; pruned < 100; time.Sleep(50 * time.Millisecond) { // pruning waits for the grace period
		report, err := c.Once(l.t.Context())
		if err != nil {
			l.t.Fatal(err)
		}
		pruned += report.Pruned["data"]
	}
	wait()
	for range 50 {
		l.append(w, 8000)()
	}
	if err := w.Close(l.t.Context()); err != nil {
		l.t.Error(err)
	}
	l.check()
	if l.acked() != l.next {
		l.t.Errorf("%d of %d records are acknowledged", l.acked(), l.next)
	}
}

// fullLog is a log on a disk that is full at times, and the results of its appends.
type fullLog struct {
	store.Store
	t       *testing.T
	disk    *disk
	what    string        // fills: bytes or inodes
	hit     chan struct{} // a write has failed because the disk is full
	next    int           // next item, and its offset
	history sim.Told
}

func (l *fullLog) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := l.Store.Put(ctx, key, body, opts)
	if errors.Is(err, unix.ENOSPC) {
		select {
		case l.hit <- struct{}{}:
		default:
		}
	}
	return info, err
}

func (l *fullLog) fill(left uint64) {
	l.t.Helper()
	if err := l.disk.fill(l.what, left); err != nil {
		l.t.Fatal(err)
	}
}

func (l *fullLog) room() {
	l.t.Helper()
	if err := l.disk.free(); err != nil {
		l.t.Fatal(err)
	}
}

// forget drops earlier signals that the disk was full.
func (l *fullLog) forget() {
	select {
	case <-l.hit:
	default:
	}
}

// awaitFull waits until so many writes have failed because the disk is full.
func (l *fullLog) awaitFull(times int) {
	l.forget()
	for range times {
		select {
		case <-l.hit:
		case <-l.t.Context().Done():
		}
	}
}

// tryFull starts an operation that retries until there is room, and stops it.
func (l *fullLog) tryFull(what string, do func(ctx context.Context) error) {
	l.t.Helper()
	ctx, stop := context.WithCancel(l.t.Context())
	done := make(chan error)
	go func() { done <- do(ctx) }()
	l.awaitFull(3)
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		l.t.Errorf("%s on a full disk: got %v, want context.Canceled", what, err)
	}
}

func (l *fullLog) options() *writer.Options {
	return &writer.Options{NoCompress: true, Checkpoint: -1, Settle: quick}
}

var quick = &store.SettleOptions{MaxBackoff: 20 * time.Millisecond}

func (l *fullLog) open(epoch fence.Epoch) *writer.Writer {
	l.t.Helper()
	w, err := writer.Open(l.t.Context(), l, fence.NewToken(epoch), l.options())
	if err != nil {
		l.t.Fatal(err)
	}
	item := 0
	if c := string(w.Recovered().Cursor); c != "" {
		if item, err = strconv.Atoi(c); err != nil {
			l.t.Fatal(err)
		}
	}
	if uint64(item) != w.Recovered().Offset || item != l.acked() {
		l.t.Errorf("the cursor is %d, the end offset %d, and %d records are acknowledged; want the same", item, w.Recovered().Offset, l.acked())
	}
	l.next = item
	return w
}

func (l *fullLog) acked() int {
	n, _, _ := l.history.Counts()
	return n
}

// begin appends an item. The function that it returns waits for the result and notes it.
func (l *fullLog) begin(w *writer.Writer, size int) (writer.Future, func()) {
	l.t.Helper()
	v := fmt.Sprintf("%d/%d/w", l.next, w.Epoch())
	l.next++
	record := []byte(v + strings.Repeat(".", size))
	f, err := w.AppendAsync(l.t.Context(), [][]byte{record}, writer.Cursor([]byte(strconv.Itoa(l.next))))
	if err != nil {
		l.t.Fatal(err)
	}
	return f, func() {
		at, err := f.Wait(l.t.Context())
		if err != nil && !errors.Is(err, writer.ErrNotCommitted) && !errors.Is(err, writer.ErrUnknown) {
			l.t.Errorf("%s: %v", v, err)
		}
		l.history.Appended("w", w.Epoch(), []string{v}, at, err)
	}
}

func (l *fullLog) append(w *writer.Writer, size int) (wait func()) {
	l.t.Helper()
	_, wait = l.begin(w, size)
	return wait
}

func (l *fullLog) compactor(token fence.Epoch) *compactor.Compactor {
	l.t.Helper()
	c, err := compactor.New(l, &compactor.Options{Token: fence.NewToken(token), Settle: quick})
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// check reads the whole log as a new process does, and compares it with the results of
// the appends.
func (l *fullLog) check() {
	l.t.Helper()
	st, err := store.Open(l.t.Context(), l.disk.url("log"))
	if err != nil {
		l.t.Fatal(err)
	}
	final, err := contents(l.t.Context(), st)
	if err != nil {
		l.t.Fatal(err)
	}
	if len(final) != l.acked() {
		l.t.Errorf("the log has %d records, but %d are acknowledged", len(final), l.acked())
	}
	if err := errors.Join(l.history.Check(final), inOrder(final)); err != nil {
		l.t.Error(err)
	}
	if report, err := verify.Run(l.t.Context(), st, nil); err != nil || !report.OK() {
		l.t.Errorf("verify: %v %+v", err, report)
	}
}
