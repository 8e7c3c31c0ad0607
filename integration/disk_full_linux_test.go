//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/testkit/sim"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// TestDiskFull fills the disk of a directory's log, of bytes and of inodes: nothing is
// acknowledged that is not there, everything can be read meanwhile, and when there is
// room again, from outside or by compaction, the log goes on as if nothing had been.
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
	l := &fullLog{t: t, disk: d, hit: make(chan struct{}, 1)}
	var err error
	l.Store, err = store.Open(t.Context(), l.disk.url("log"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Init(t.Context(), l, &manifest.InitOptions{Grace: manifest.MinGrace}); err != nil {
		t.Fatal(err)
	}
	fill := func(left uint64) {
		t.Helper()
		if err := l.disk.fill(what, left); err != nil {
			t.Fatal(err)
		}
	}
	room := func() {
		t.Helper()
		if err := l.disk.free(); err != nil {
			t.Fatal(err)
		}
	}

	// Room comes while the writer tries: everything is committed.
	w := l.open(1)
	for range 10 {
		l.append(w, 100)()
	}
	fill(0)
	waits := []func(){l.append(w, 5000), l.append(w, 5000), l.append(w, 5000)}
	l.awaitFull(3)
	room()
	for _, wait := range waits {
		wait()
	}
	if n := l.acked(); n != 13 {
		t.Errorf("%d records were acknowledged when there was room again, want 13", n)
	}

	// The writer is closed on a full disk: nothing of that is acknowledged.
	fill(0)
	waits = []func(){l.append(w, 5000), l.append(w, 5000)}
	l.awaitFull(3)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Close(stopped); err == nil {
		t.Error("closed on a full disk as if everything had been committed")
	}
	for _, wait := range waits {
		wait()
	}
	if n := l.acked(); n != 13 {
		t.Errorf("%d records were acknowledged on a full disk, want 13", n)
	}
	// Others read all that there is, but can change nothing.
	l.check()
	l.tryFull("opening a writer", func(ctx context.Context) error {
		_, err := writer.Open(ctx, l, fence.NewToken(2), l.options())
		return err
	})
	l.tryFull("compaction", func(ctx context.Context) error {
		_, err := l.compactor().Once(ctx, fence.NewToken(1))
		return err
	})
	l.check()
	room()
	w = l.open(3)
	l.check()

	// The log itself fills the disk. With a little more, compaction makes room: the
	// writer, which has tried all the time, goes on.
	fill(map[string]uint64{"bytes": 2 << 20, "inodes": 700}[what])
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
	fill(map[string]uint64{"bytes": 256 << 10, "inodes": 300}[what])
	c := l.compactor()
	for pruned := 0; pruned < 100; time.Sleep(50 * time.Millisecond) { // it takes the grace period
		report, err := c.Once(t.Context(), fence.NewToken(2))
		if err != nil {
			t.Fatal(err)
		}
		pruned += report.Pruned["data"]
	}
	wait()
	for range 50 {
		l.append(w, 8000)()
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
	l.check()
	if l.acked() != l.next {
		t.Errorf("%d of %d records were acknowledged", l.acked(), l.next)
	}
}

// fullLog is a log on a disk that is full now and then, and what was said of it.
type fullLog struct {
	store.Store
	t       *testing.T
	disk    *disk
	hit     chan struct{} // a write has met the end of the disk
	next    int           // item, and its offset
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

// forget that the disk was full before.
func (l *fullLog) forget() {
	select {
	case <-l.hit:
	default:
	}
}

// awaitFull waits until so many writes have met the end of the disk.
func (l *fullLog) awaitFull(times int) {
	l.forget()
	for range times {
		select {
		case <-l.hit:
		case <-l.t.Context().Done():
		}
	}
}

// tryFull does what tries until there is room, and stops it.
func (l *fullLog) tryFull(what string, do func(ctx context.Context) error) {
	l.t.Helper()
	ctx, stop := context.WithCancel(l.t.Context())
	done := make(chan error)
	go func() { done <- do(ctx) }()
	l.awaitFull(3)
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		l.t.Errorf("%s on a full disk: %v", what, err)
	}
}

func (l *fullLog) options() *writer.Options {
	return &writer.Options{NoCompress: true, Checkpoint: -1, Settle: quick}
}

var quick = &store.SettleOptions{MaxBackoff: 20 * time.Millisecond}

func (l *fullLog) open(epoch uint64) *writer.Writer {
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
		l.t.Errorf("the cursor says %d, the log ends at %d, and %d were acknowledged", item, w.Recovered().Offset, l.acked())
	}
	l.next = item
	return w
}

func (l *fullLog) acked() int {
	n, _, _ := l.history.Counts()
	return n
}

// begin appends an item. The function waits for the answer, and takes it down.
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
		l.history.Appended("w", uint64(w.Epoch()), []string{v}, at, err)
	}
}

func (l *fullLog) append(w *writer.Writer, size int) (wait func()) {
	l.t.Helper()
	_, wait = l.begin(w, size)
	return wait
}

func (l *fullLog) compactor() *compactor.Compactor {
	l.t.Helper()
	c, err := compactor.New(l, &compactor.Options{Settle: quick})
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// check reads the whole log, as a process does that comes now, and holds it against
// what was said.
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
		l.t.Errorf("%d records are there, %d were acknowledged", len(final), l.acked())
	}
	if err := errors.Join(l.history.Check(final), inOrder(final)); err != nil {
		l.t.Error(err)
	}
	if report, err := verify.Run(l.t.Context(), st, nil); err != nil || !report.OK() {
		l.t.Errorf("verify: %v %+v", err, report)
	}
}
