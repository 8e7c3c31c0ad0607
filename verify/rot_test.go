package verify_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// This file damages a log with everything in it, in each way that one disk can: an object
// removed, cut at a byte, or with one flipped bit. For each it runs verify, and for each of the
// sample a reader, a writer, a compactor, and those in rotusers_test.go.

var (
	every = flag.Int("every", test.Of(3001, 1), "TestRot tries one in so many ways to damage the log; 1 takes many minutes")
	users = flag.Int("users", test.Of(6, 16), "each removed object, and one in so many others, is also met by a reader, a writer, a compactor and others")
)

// rotten is a log with objects of every kind, and of what damage nobody can know.
type rotten struct {
	*logtest.Log
	live []string // the files
	// free may be removed without a problem, and idle may be changed in any way.
	free, idle map[string]string // and why
}

// paged moves entries of the newest manifest's lists to pages, which takes a thousand entries
// otherwise.
func paged(l *logtest.Log) {
	l.Helper()
	l.Publish(func(m *state.Change) error {
		if n := len(m.Segments) - 1; n > 0 && len(m.SegmentPages) == 0 {
			m.SegmentPages = []state.Page[uint64]{page(l, "segments", m.Segments[:n], m.Segments[0].First, m.Segments[n-1].End)}
			m.Segments = m.Segments[n:]
		}
		if n := len(m.Seals) - 1; n > 0 && len(m.SealPages) == 0 {
			m.SealPages = []state.Page[uint64]{page(l, "seals", m.Seals[:n], uint64(m.Seals[0].Position.Epoch), uint64(m.Seals[n-1].Next))}
			m.Seals = m.Seals[n:]
		}
		if n := len(m.Dropped) - 1; n > 0 && len(m.DroppedPages) == 0 && m.Dropped[0].Version > m.Forgotten {
			m.DroppedPages = []state.Page[uint64]{page(l, "dropped", m.Dropped[:n], m.Dropped[0].Version, m.Dropped[n-1].Version)}
			m.Dropped = m.Dropped[n:]
		}
		if n := len(m.Table.Files); n > 0 && len(m.FilePages) == 0 {
			m.FilePages = []state.Page[string]{page(l, "files", m.Table.Files, m.Table.Files[0].Key, m.Table.Files[n-1].Key)}
			m.Table.Files = nil
		}
		if n := len(m.Removed) - 1; n > 0 && len(m.RemovedPages) == 0 {
			m.RemovedPages = []state.Page[string]{page(l, "removed", m.Removed[:n], m.Removed[0], m.Removed[n-1])}
			m.Removed = m.Removed[n:]
		}
		return nil
	})
}

// page stores a page of entries.
func page[E any, B uint64 | string](l *logtest.Log, list string, entries []E, from, to B) state.Page[B] {
	l.Helper()
	key := layout.ListKey(layout.Compactor, l.Token, uuid.NewString())
	body, err := document.Encode(key, struct {
		Format  int      `json:"format"`
		Log     fence.ID `json:"log"`
		Key     string   `json:"key"`
		List    string   `json:"list"`
		Entries []E      `json:"entries"`
	}{document.Format, l.Format.Log, key, list, entries})
	if err != nil {
		l.Fatal(err)
	}
	l.Put(key, body)
	return state.Page[B]{Key: key, Count: len(entries), Size: int64(len(body)), CRC32C: crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)), From: from, To: to}
}

// elect is a term of an election that ends, above an epoch.
func elect(l *logtest.Log, prefix string, above fence.Epoch) {
	l.Helper()
	e, err := leader.New(l.Mem, prefix, &leader.Options{MinEpoch: above})
	if err != nil {
		l.Fatal(err)
	}
	term, err := e.Campaign(context.Background())
	if err == nil {
		err = term.Resign(context.Background())
	}
	if err != nil {
		l.Fatal(err)
	}
}

func newRotten(t *testing.T, grace time.Duration) *rotten {
	t.Helper()
	f := logtest.Format()
	if grace > 0 {
		f = logtest.WithGrace(grace)
	}
	r := &rotten{Log: logtest.New(t, f, nil), free: map[string]string{}, idle: map[string]string{}}
	l := r.Log
	files := table(l, 6)
	compact(l)
	paged(l)
	l.Lead(3)
	compact(l)
	files = append(files, table(l, 2, files[0], files[1], files[2])...)
	if _, err := l.State.Pin(t.Context(), &state.PinOptions{Name: "backup"}); err != nil {
		t.Fatal(err)
	}
	compact(l)
	paged(l)
	table(l, 1, files[3])
	l.Lead(2)
	if _, err := l.State.Pin(t.Context(), &state.PinOptions{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	m := l.Newest()
	at := *m.Hint
	l.Put(layout.DataKey(at.Position), l.Data(at, "after the hint"))
	l.Appended("after the hint")
	elect(l, layout.KindLock, l.Epoch)
	elect(l, layout.KindCompactorLock, l.Token)
	consume(t, l)
	l.Put("tmp/00000000-0000-4000-8000-000000000001", []byte("a probe's"))
	l.Put("somebody/else.txt", []byte("theirs"))

	r.live = r.files()
	r.free[layout.DataKey(at.Position)] = "it comes after the hint"
	r.free[layout.ManifestKey(m.Version)] = "it is the newest manifest, and nothing says that it was there"
	seals := map[fence.Position]bool{}
	for s, err := range l.State.Seals(t.Context(), m) {
		if err != nil {
			t.Fatal(err)
		}
		seals[s.Position] = true
	}
	pins, err := l.State.Pins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range l.Keys("") {
		p, data := layout.ParseDataKey(key)
		v, version := layout.ParseManifestKey(key)
		switch kind := layout.KindOf(key); {
		case data && m.Past(p) && !seals[p]:
			r.idle[key] = "it is folded"
		case version && v <= m.PruneMark && !slices.ContainsFunc(pins, func(p state.PinInfo) bool { return p.Version == v }):
			r.idle[key] = "it is not promised any more"
		case kind == layout.KindTmp, kind == layout.KindUnknown:
			r.idle[key] = "nobody needs it"
		case kind == layout.KindPin, kind == layout.KindConsumer, kind == layout.KindLock, kind == layout.KindCompactorLock:
			r.free[key] = "it may be deleted"
		}
	}
	return r
}

// files reads the keys of the live files through a snapshot.
func (r *rotten) files() []string {
	r.Helper()
	keys, err := snapshot(r.Log)
	if err != nil {
		r.Fatal(err)
	}
	return keys
}

func snapshot(l *logtest.Log) (keys []string, err error) {
	rd, err := reader.Open(context.Background(), l.Mem, &reader.Options{Settle: logtest.Quick})
	if err != nil {
		return nil, err
	}
	s, err := rd.Snapshot(context.Background(), &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(context.Background())) }()
	for f, err := range s.Files(context.Background()) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, f.Key)
	}
	return keys, nil
}

// harm is one way to damage one object.
type harm struct {
	key, what string
	body      []byte // nil: removed
}

func (h harm) String() string { return h.key + " " + h.what }

// harms returns each n-th way to damage an object, and always some.
func (r *rotten) harms(n int) (all []harm) {
	i := 0
	nth := func() bool { i++; return i%n == 0 }
	for _, key := range r.Keys("") {
		whole := r.Body(key)
		all = append(all, harm{key, "removed", nil})
		for at := range whole {
			if nth() || at == 0 || at == len(whole)-1 {
				all = append(all, harm{key, fmt.Sprintf("cut to %d of %d bytes", at, len(whole)), whole[:at:at]})
			}
			for bit := range 8 {
				if nth() {
					b := bytes.Clone(whole)
					b[at] ^= 1 << bit
					all = append(all, harm{key, fmt.Sprintf("with bit %d of byte %d of %d flipped", bit, at, len(whole)), b})
				}
			}
		}
	}
	return all
}

func (h harm) to(l *logtest.Log) {
	if h.body == nil {
		l.Remove(h.key)
	} else {
		l.Put(h.key, h.body)
	}
}

// TestRot wants verify to find each damage, and everybody else to meet it with an error or with
// what is right.
func TestRot(t *testing.T) {
	for name, grace := range map[string]time.Duration{"with what grace keeps": time.Hour, "pruned at once": 0} {
		t.Run(name, func(t *testing.T) {
			r := newRotten(t, grace)
			if rep := run(t, r.Mem); !rep.OK() {
				t.Fatalf("the whole log: %v", rep.Problems)
			}
			kinds := map[string]int{}
			for _, key := range r.Keys("") {
				kinds[layout.KindOf(key)]++
			}
			if len(kinds) != len(layout.Kinds()) {
				t.Errorf("there are objects of the kinds %v, and those of a log are %v", kinds, layout.Kinds())
			}
			m := r.Newest()
			t.Logf("%v; pages: %d of segments, %d of seals, %d of dropped, %d of files, %d of removed", kinds,
				len(m.SegmentPages), len(m.SealPages), len(m.DroppedPages), len(m.FilePages), len(m.RemovedPages))
			all := r.harms(*every)
			var work sync.WaitGroup
			var tried atomic.Int64
			next := make(chan harm)
			for range runtime.GOMAXPROCS(0) {
				own := r.Fork(t, nil)
				work.Go(func() {
					for h := range next {
						h.to(own)
						r.checkVerify(t, own, h)
						if i := tried.Add(1); h.body == nil || i%int64(*users) == 0 {
							r.checkReader(t, own, h)
							r.checkElection(t, own, h)
							r.checkWriter(t, h)
							r.checkCompactor(t, h)
							r.checkFiles(t, h)
							r.checkConsumer(t, h)
						}
						own.Put(h.key, r.Body(h.key))
					}
				})
			}
			for i, h := range all {
				if t.Failed() {
					break
				}
				if i%20_000 == 0 && i > 0 {
					t.Logf("%d of %d", i, len(all))
				}
				next <- h
			}
			close(next)
			work.Wait()
			t.Logf("%d kinds of damage", len(all))
		})
	}
}

func (r *rotten) checkVerify(t *testing.T, l *logtest.Log, h harm) {
	rep, err := verify.Run(t.Context(), l.Mem, &verify.Options{Settle: logtest.Quick})
	found := err != nil || !rep.OK()
	if lost := h.body == nil; !found && r.idle[h.key] == "" && !(lost && r.free[h.key] != "") {
		t.Errorf("verify finds nothing: %v", h)
	}
}

// history checks that what was read is the beginning of what was appended, and all of it if
// there is no error.
func (r *rotten) history(t *testing.T, h harm, got []string, err error, more ...string) {
	t.Helper()
	want := r.History()
	if n := len(want) - 1; h.body == nil && r.free[h.key] == "it comes after the hint" {
		want = want[:n]
	}
	want = append(want, more...)
	if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) || err == nil && len(got) < len(want) {
		t.Errorf("%v: read %q, %v; the log has %q", h, got, err, want)
	}
}

func (r *rotten) checkReader(t *testing.T, l *logtest.Log, h harm) {
	got, err := logtest.Read(l.Mem, 0, nil)
	r.history(t, h, got, err)
	if files, err := snapshot(l); err == nil && !slices.Equal(files, r.live) {
		t.Errorf("%v: files %q, want %q", h, files, r.live)
	}
}

// checkElection asks who led last: nobody learns anything that was not so.
func (r *rotten) checkElection(t *testing.T, l *logtest.Log, h harm) {
	for _, prefix := range []string{layout.KindLock, layout.KindCompactorLock} {
		ask := func(l *logtest.Log) (leader.Record, error) {
			e, err := leader.New(l.Mem, prefix, nil)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := e.Leader(t.Context())
			rec.Version = "" // the store's
			return rec, err
		}
		want, _ := ask(r.Log)
		got, err := ask(l)
		if known := err == nil || errors.Is(err, leader.ErrNoLeader); known && h.body != nil && got != want {
			t.Errorf("%v: the leader is %+v, want %+v", h, got, want)
		}
	}
}

// checkWriter appends to the damaged log. What is acknowledged must be readable, at once or
// when the damaged object has been restored.
func (r *rotten) checkWriter(t *testing.T, h harm) {
	l := r.Fork(t, nil)
	h.to(l)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := writer.Open(ctx, l.Mem, fence.NewToken(l.Epoch+1), &writer.Options{Settle: logtest.Quick, NoCompress: true, Checkpoint: -1})
	if err != nil {
		if ctx.Err() != nil {
			t.Errorf("%v: the writer hangs: %v", h, err)
		}
		r.restored(t, l, h)
		return
	}
	f, err := w.CreateFile(ctx, ".new", 0)
	if err == nil {
		err = f.Close()
	}
	var more []string
	if err == nil {
		if w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f.File()}}) == nil {
			// The table was right, or it would not fit when it is folded.
			if _, err := snapshot(l); err != nil {
				t.Errorf("%v: files were added to a table that cannot be read: %v", h, err)
			}
		}
	}
	if _, err := w.Append(ctx, [][]byte{[]byte("new")}); err == nil {
		more = append(more, "new")
	}
	_ = w.Close(ctx)
	got, err := logtest.Read(l.Mem, 0, nil)
	r.history(t, h, got, err, more...)
	r.restored(t, l, h, more...)
}

// restored puts the damaged object back, unless something else is there now, and wants the
// whole history.
func (r *rotten) restored(t *testing.T, l *logtest.Log, h harm, more ...string) {
	t.Helper()
	switch {
	case h.body == nil && l.Has(h.key), h.body != nil && (!l.Has(h.key) || !bytes.Equal(l.Body(h.key), h.body)):
		// It was lost without a sign, or nobody needed it any more.
	default:
		l.Put(h.key, r.Body(h.key))
		if h.body == nil && r.free[h.key] == "it comes after the hint" {
			return // others have gone on without it
		}
	}
	got, err := logtest.Read(l.Mem, 0, nil)
	if err != nil {
		t.Errorf("%v, and restored: %v", h, err)
	}
	r.history(t, h, got, err, more...)
}

func (r *rotten) checkCompactor(t *testing.T, h harm) {
	l := r.Fork(t, nil)
	h.to(l)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		l.Token++
		c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(l.Token), FanIn: 2, SegmentBytes: 4096, Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Once(ctx); err != nil && ctx.Err() != nil {
			t.Errorf("%v: the compactor hangs: %v", h, err)
		}
	}
	got, err := logtest.Read(l.Mem, 0, nil)
	r.history(t, h, got, err)
	if files, err := snapshot(l); err == nil && !slices.Equal(files, r.live) {
		t.Errorf("%v: files %q, want %q", h, files, r.live)
	}
	if !strings.HasPrefix(h.key, layout.PinPrefix) { // the pin's version may be gone
		r.restored(t, l, h)
	}
}
