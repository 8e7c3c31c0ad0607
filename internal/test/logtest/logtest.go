package logtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// Quick is for stores in memory: retries do not wait.
var Quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 3}

// Format is that of every test's log, without a grace period. It is made once, since the
// store is probed before.
var Format = sync.OnceValue(func() manifest.Format {
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: -1})
	if err != nil {
		panic(err)
	}
	return f
})

// Log is a log in memory. Its helpers fail the test on any error.
type Log struct {
	testing.TB
	Mem    *memstore.Store
	Faulty *faultstore.Store // in front of Mem
	State  *state.Log        // on Mem, without faults
	Format manifest.Format

	mu    sync.Mutex
	want  []string    // the history
	Epoch fence.Epoch // of the last writer that was opened
	Token fence.Epoch // of the last compactor
}

// New returns a log without records. With nil options time is that of clock.Go, which is
// virtual in a bubble of testing/synctest.
func New(t testing.TB, f manifest.Format, opts *memstore.Options) *Log {
	t.Helper()
	body, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		t.Fatal(err)
	}
	l := On(t, f, opts)
	l.Put(layout.FormatKey, body)
	return l
}

// On is New on an empty store, without format.json.
func On(t testing.TB, f manifest.Format, opts *memstore.Options) *Log {
	if opts == nil {
		opts = &memstore.Options{Clock: clock.Go()}
	}
	mem := memstore.New(opts)
	return &Log{
		TB: t, Format: f, Mem: mem,
		Faulty: faultstore.New(mem, &faultstore.Options{Clock: clock.Go()}),
		State:  state.With(mem, f, &state.Options{Settle: Quick, Clock: clock.Go()}),
	}
}

// WithGrace is [Format] with a grace period.
func WithGrace(grace time.Duration) manifest.Format {
	f := Format()
	f.Grace = grace
	return f
}

// Bubble runs f on a log in virtual time.
func Bubble(t *testing.T, format manifest.Format, f func(t *testing.T, l *Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins at midnight. A compactor takes a time in whole seconds for one
		// that the store has cut, and waits longer.
		time.Sleep(time.Millisecond)
		f(t, New(t, format, nil))
	})
}

// Fork returns a copy on a store of its own.
func (l *Log) Fork(t testing.TB, opts *memstore.Options) *Log {
	t.Helper()
	c := On(t, l.Format, opts)
	for key, body := range l.Objects() {
		c.Put(key, body)
	}
	c.want, c.Epoch, c.Token = l.History(), l.Epoch, l.Token
	return c
}

// Keys returns the keys below a prefix, in order.
func (l *Log) Keys(prefix string) []string {
	l.Helper()
	var all []string
	for info, err := range l.Mem.List(context.Background(), prefix, nil) {
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, info.Key)
	}
	slices.Sort(all)
	return all
}

// Objects returns all objects with their bodies.
func (l *Log) Objects() map[string][]byte {
	l.Helper()
	all := map[string][]byte{}
	for _, key := range l.Keys("") {
		all[key] = l.Body(key)
	}
	return all
}

// Body returns an object's body.
func (l *Log) Body(key string) []byte {
	l.Helper()
	body, _, err := store.Read(context.Background(), l.Mem, key, &store.ReadOptions{Limit: 1 << 30, Settle: Quick})
	if err != nil {
		l.Fatal(err)
	}
	return body
}

// Has reports whether there is an object.
func (l *Log) Has(key string) bool {
	l.Helper()
	_, err := l.Mem.Get(context.Background(), key, nil)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		l.Fatal(err)
	}
	return err == nil
}

// Put writes an object, whatever is there.
func (l *Log) Put(key string, body []byte) {
	l.Helper()
	if _, err := l.Mem.Put(context.Background(), key, body, nil); err != nil {
		l.Fatal(err)
	}
}

// Remove deletes objects.
func (l *Log) Remove(keys ...string) {
	l.Helper()
	if err := l.Mem.Delete(context.Background(), keys...); err != nil {
		l.Fatal(err)
	}
}

// Lead is a leadership that appends n records, each in an object of its own.
func (l *Log) Lead(n int) {
	l.Helper()
	w := l.Open(nil)
	for i := range n {
		l.Append(w, fmt.Sprintf("%d/%d", l.Epoch, i))
	}
	l.Close(w)
}

// Open opens a writer of the next epoch. Unless the options say otherwise, its payloads
// are not compressed and its clock is clock.Go.
func (l *Log) Open(opts *writer.Options) *writer.Writer {
	l.Helper()
	l.Epoch++
	o := *cmp.Or(opts, &writer.Options{Settle: Quick, NoCompress: true, Clock: clock.Go()})
	w, err := writer.Open(context.Background(), l.Mem, fence.NewToken(l.Epoch), &o)
	if err != nil {
		l.Fatal(err)
	}
	return w
}

// Append appends one record, with itself as the cursor, and adds it to the history.
func (l *Log) Append(w *writer.Writer, value string) {
	l.Helper()
	if _, err := w.Append(context.Background(), [][]byte{[]byte(value)}, writer.Cursor([]byte(value))); err != nil {
		l.Fatal(err)
	}
	l.Appended(value)
}

// Appended adds a record to the history, for a test that has put it into the log itself.
func (l *Log) Appended(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want = append(l.want, value)
}

// Close closes a writer.
func (l *Log) Close(w *writer.Writer) {
	l.Helper()
	if err := w.Close(context.Background()); err != nil {
		l.Fatal(err)
	}
}

// History is what Append has appended so far. Others may be appending.
func (l *Log) History() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.want)
}

// Contents reads the log from its beginning, without faults.
func (l *Log) Contents() []string {
	l.Helper()
	all, err := Read(l.Mem, 0, nil)
	if err != nil {
		l.Fatal(err)
	}
	return all
}

// Read returns the records of a log from one on. It calls each, unless it is nil, with
// the number of those read so far.
func Read(st store.Store, from uint64, each func(n int)) ([]string, error) {
	r, err := reader.Open(context.Background(), st, &reader.Options{Settle: Quick, Clock: clock.Go()})
	if err != nil {
		return nil, err
	}
	var all []string
	for rec, err := range r.Read(context.Background(), from) {
		if err != nil {
			return all, err
		}
		if want := from + uint64(len(all)); rec.Offset != want {
			return all, fmt.Errorf("record %d has offset %d", want, rec.Offset)
		}
		if all = append(all, string(rec.Value)); each != nil {
			each(len(all))
		}
	}
	return all, nil
}

// Newest returns the newest manifest.
func (l *Log) Newest() *state.Manifest {
	l.Helper()
	m, err := l.State.Newest(context.Background())
	if err != nil {
		l.Fatal(err)
	}
	return m
}

// Publish changes the manifest as a compactor of a new epoch.
func (l *Log) Publish(f func(*state.Change) error) {
	l.Helper()
	l.Token++
	u, err := l.State.Updater(layout.Compactor, fence.NewToken(l.Token))
	if err == nil {
		_, err = u.Update(context.Background(), f)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// Header is that of an object that a zombie, or this test, puts into the log.
func (l *Log) Header(p frame.Point) frame.Header {
	return frame.Header{Log: l.Format.Log, Nonce: fence.ID(uuid.New()), Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}
}

// Seal is an opener's seal for a slot, genuine or junk.
func (l *Log) Seal(p fence.Position, next fence.Epoch) []byte {
	h := l.Header(frame.Point{Position: p})
	return frame.EncodeSeal(&h, next)
}

// Data is an object of the log that is sound in itself.
func (l *Log) Data(p frame.Point, records ...string) []byte {
	var b frame.Builder
	for _, r := range records {
		b.Add([]byte(r))
	}
	h := l.Header(p)
	return slices.Clone(b.Finish(&h, frame.Plain))
}

// At is a position.
func At(epoch fence.Epoch, seq uint64) fence.Position {
	return fence.Position{Epoch: epoch, Seq: seq}
}

// Short returns a key with its numbers without their zeros: "data/1/2".
func Short(key string) string {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		if s := strings.TrimLeft(p, "0"); s != "" {
			parts[i] = s
		}
	}
	return strings.Join(parts, "/")
}
