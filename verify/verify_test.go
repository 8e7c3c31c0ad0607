package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, UploadSize: 1}

// lead appends n objects in an epoch of their own, and leaves.
func lead(t testing.TB, st store.Store, epoch uint64, n int) {
	t.Helper()
	w, err := writer.Open(t.Context(), st, fence.NewToken(epoch), &writer.Options{Init: &manifest.InitOptions{Grace: -1, Probe: quickProbe}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := w.Append(t.Context(), [][]byte{fmt.Appendf(nil, "record %d of epoch %d", i, epoch)}, writer.Cursor([]byte{byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func compact(t testing.TB, st store.Store, epoch uint64) {
	t.Helper()
	c, err := compactor.New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Once(t.Context(), fence.NewToken(epoch)); err != nil {
		t.Fatal(err)
	}
}

// sample is a log with two folded epochs, a folded part of the third, and a
// chain that goes on with it into the fourth. Its floor is at 3/4, its tail at
// 4/4. Records: 3 in each epoch, and 3 more in the third.
func sample(t testing.TB) *memstore.Store {
	t.Helper()
	st := memstore.New(nil)
	lead(t, st, 1, 3)
	lead(t, st, 2, 3)
	w, err := writer.Open(t.Context(), st, fence.NewToken(3), nil)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n int) {
		for i := range n {
			if _, err := w.Append(t.Context(), [][]byte{fmt.Appendf(nil, "record %d of epoch 3", i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(3)
	compact(t, st, 1)
	add(3)
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lead(t, st, 4, 3)
	e, err := leader.New(st, "lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st
}

func slot(epoch fence.Epoch, seq uint64) string {
	return layout.DataKey(fence.Position{Epoch: epoch, Seq: seq})
}

func run(t testing.TB, st store.Store) *verify.Report {
	t.Helper()
	r, err := verify.Run(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t testing.TB, st store.Store, key string) []byte {
	t.Helper()
	b, _, err := store.ReadAll(t.Context(), st, key, 1<<30, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t testing.TB, st store.Store, key string, body []byte) {
	t.Helper()
	if _, err := st.Put(t.Context(), key, body, nil); err != nil {
		t.Fatal(err)
	}
}

func del(t testing.TB, st store.Store, key string) {
	t.Helper()
	get(t, st, key) // it must be there
	if err := st.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func newest(t testing.TB, st store.Store) *state.Manifest {
	t.Helper()
	log, err := state.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := log.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWholeLog(t *testing.T) {
	st := sample(t)
	r := run(t, st)
	if !r.OK() || r.MoreProblems != 0 {
		t.Fatalf("problems in a whole log: %v", r.Problems)
	}
	if r.First != 0 || r.End != 15 || r.Segments != 1 || r.Seals != 3 || r.Slots != 7 || r.Locks != 1 ||
		r.Floor != (fence.Position{Epoch: 3, Seq: 4}) || r.Tail != (fence.Position{Epoch: 4, Seq: 4}) {
		t.Errorf("%+v", r)
	}
	if r.Objects[verify.KindFormat].Objects != 1 || r.Objects[verify.KindSegment].Objects != 1 || r.Objects[verify.KindLock].Objects != 1 || r.Objects[verify.KindUnknown].Objects != 0 {
		t.Errorf("%+v", r.Objects)
	}
}

func TestNoLogAndFuture(t *testing.T) {
	st := memstore.New(nil)
	if _, err := verify.Run(t.Context(), st, nil); !errors.Is(err, manifest.ErrNotInitialized) {
		t.Fatal(err)
	}
	if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probe: quickProbe}); err != nil {
		t.Fatal(err)
	}
	if r := run(t, st); !r.OK() || r.End != 0 {
		t.Fatalf("%+v", r)
	}
	put(t, st, layout.FormatKey, []byte(`{"format": 2}`))
	if _, err := verify.Run(t.Context(), st, nil); !errors.Is(err, fence.ErrFormat) {
		t.Fatal(err)
	}
}

// flip changes one bit of an object.
func flip(t testing.TB, st store.Store, key string, at int) {
	b := get(t, st, key)
	if at < 0 {
		at += len(b)
	}
	b = bytes.Clone(b)
	b[at] ^= 1
	put(t, st, key, b)
}

func TestDamage(t *testing.T) {
	segment := func(t testing.TB, st store.Store) string { return newest(t, st).Segments[0].Key }
	manifestKey := func(t testing.TB, st store.Store) string { return layout.ManifestKey(newest(t, st).Version) }
	lock := "lock/" + layout.FormatNumber(1) + ".json"
	for name, c := range map[string]struct {
		// harm does the damage and returns the keys that must be named, in any order.
		harm func(t testing.TB, st store.Store) []string
		says string
	}{
		"a bit of a record": {func(t testing.TB, st store.Store) []string {
			flip(t, st, slot(3, 5), frame.HeaderSize+3)
			return []string{slot(3, 5)}
		}, "body checksum"},
		"a bit of a header": {func(t testing.TB, st store.Store) []string {
			flip(t, st, slot(4, 1), 60)
			return []string{slot(4, 1)}
		}, "header checksum"},
		"two objects": {func(t testing.TB, st store.Store) []string {
			flip(t, st, slot(3, 5), 140)
			flip(t, st, slot(4, 2), -1)
			return []string{slot(3, 5), slot(4, 2)}
		}, "checksum"},
		"neighbours": {func(t testing.TB, st store.Store) []string {
			flip(t, st, slot(3, 5), 20)
			flip(t, st, slot(3, 6), 20)
			return []string{slot(3, 5), slot(3, 6)}
		}, "checksum"},
		"a truncated object": {func(t testing.TB, st store.Store) []string {
			b := get(t, st, slot(4, 2))
			put(t, st, slot(4, 2), b[:len(b)-1])
			return []string{slot(4, 2)}
		}, "the header says"},
		"an empty object": {func(t testing.TB, st store.Store) []string {
			put(t, st, slot(4, 2), nil)
			return []string{slot(4, 2)}
		}, "empty"},
		"an object behind the tail": {func(t testing.TB, st store.Store) []string {
			del(t, st, slot(4, 2))
			return []string{slot(4, 2)}
		}, "it is missing: manifest"},
		"the last object": {func(t testing.TB, st store.Store) []string {
			del(t, st, slot(4, 3))
			return []string{slot(4, 3)}
		}, "acknowledged up to 4/4"},
		"an object of an earlier epoch": {func(t testing.TB, st store.Store) []string {
			del(t, st, slot(3, 5))
			return []string{slot(3, 5)}
		}, "it is missing"},
		"a seal on the chain": {func(t testing.TB, st store.Store) []string {
			del(t, st, slot(3, 7))
			return []string{slot(3, 7)}
		}, "it is missing"},
		"a seal behind the floor": {func(t testing.TB, st store.Store) []string {
			del(t, st, slot(1, 4))
			return []string{slot(1, 4)}
		}, "the seal that ended epoch 1 is missing"},
		"the first seal": {func(t testing.TB, st store.Store) []string {
			del(t, st, slot(0, 1))
			return []string{slot(0, 1)}
		}, "the seal that ended epoch 0 is missing"},
		"another seal": {func(t testing.TB, st store.Store) []string {
			h := frame.Header{Log: newest(t, st).Log, Nonce: fence.ID{1}, Position: fence.Position{Epoch: 1, Seq: 4}}
			put(t, st, slot(1, 4), frame.EncodeSeal(&h, 2))
			return []string{slot(1, 4)}
		}, "another seal"},
		"a segment": {func(t testing.TB, st store.Store) []string {
			key := segment(t, st)
			del(t, st, key)
			return []string{key}
		}, "records 0 to 8"},
		"a bit of a segment": {func(t testing.TB, st store.Store) []string {
			key := segment(t, st)
			flip(t, st, key, frame.HeaderSize+10)
			return []string{key}
		}, "checksum"},
		"a bit of a segment's index": {func(t testing.TB, st store.Store) []string {
			key := segment(t, st)
			flip(t, st, key, -1)
			return []string{key}
		}, "segment index"},
		"a truncated segment": {func(t testing.TB, st store.Store) []string {
			key := segment(t, st)
			put(t, st, key, get(t, st, key)[:100])
			return []string{key}
		}, "the manifest says"},
		"a truncated manifest": {func(t testing.TB, st store.Store) []string {
			key := manifestKey(t, st)
			put(t, st, key, get(t, st, key)[:300])
			return []string{key}
		}, "the newest manifest is damaged"},
		"an old manifest": {func(t testing.TB, st store.Store) []string {
			m := newest(t, st)
			if m.PruneMark+1 >= m.Version {
				t.Fatal("there is no old manifest")
			}
			put(t, st, layout.ManifestKey(m.PruneMark+1), []byte("{"))
			return []string{layout.ManifestKey(m.PruneMark + 1)}
		}, "compactor"},
		"an old manifest is missing": {func(t testing.TB, st store.Store) []string {
			m := newest(t, st)
			del(t, st, layout.ManifestKey(m.Version-1))
			return []string{layout.ManifestKey(m.Version - 1)}
		}, "missing"},
		"another log's object": {func(t testing.TB, st store.Store) []string {
			h := frame.Header{Log: fence.ID{7}, Position: fence.Position{Epoch: 4, Seq: 2}, Offset: 13}
			var b frame.Builder
			b.Add([]byte("x"))
			put(t, st, slot(4, 2), b.Finish(&h, frame.Plain))
			return []string{slot(4, 2)}
		}, "it belongs to log 07"},
		"a gap in the offsets": {func(t testing.TB, st store.Store) []string {
			f, err := frame.Decode(get(t, st, slot(4, 2)), fence.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			h := f.Header
			h.Offset++
			var b frame.Builder
			b.Add([]byte("x"))
			put(t, st, slot(4, 2), b.Finish(&h, frame.Plain))
			return []string{slot(4, 2)}
		}, "its first offset is 14"},
		"another object in its place": {func(t testing.TB, st store.Store) []string {
			f, err := frame.Decode(get(t, st, slot(4, 2)), fence.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			h := f.Header
			var b frame.Builder
			b.Add([]byte("something else"))
			put(t, st, slot(4, 2), b.Finish(&h, frame.Plain))
			return []string{slot(4, 3)} // the next one no longer follows it
		}, "follows an object with checksum"},
		"a rewritten end": {func(t testing.TB, st store.Store) []string {
			f, err := frame.Decode(get(t, st, slot(4, 3)), fence.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			h := f.Header
			var b frame.Builder
			b.Add([]byte("something else"))
			put(t, st, slot(4, 3), b.Finish(&h, frame.Plain))
			return []string{manifestKey(t, st)} // its hint has the checksum
		}, "its hint at 4/4"},
		"sealed in the midst": {func(t testing.TB, st store.Store) []string {
			m := newest(t, st)
			h := frame.Header{Log: m.Log, Nonce: fence.ID{1}, Position: fence.Position{Epoch: 4, Seq: 2}}
			put(t, st, slot(4, 2), frame.EncodeSeal(&h, 9))
			return []string{slot(4, 2)}
		}, "leaves epoch 4 here"},
		"a seal with void objects behind it": {func(t testing.TB, st store.Store) []string {
			flip(t, st, slot(3, 7), 20)
			h := frame.Header{Log: newest(t, st).Log, Position: fence.Position{Epoch: 3, Seq: 8}, Offset: 99}
			var b frame.Builder
			b.Add([]byte("void"))
			put(t, st, slot(3, 8), b.Finish(&h, frame.Plain))
			return []string{slot(3, 7)}
		}, "checksum"},
		"an object farther ahead than any window": {func(t testing.TB, st store.Store) []string {
			h := frame.Header{Log: newest(t, st).Log, Position: fence.Position{Epoch: 4, Seq: 4 + 1<<16}, Offset: 99}
			var b frame.Builder
			b.Add([]byte("x"))
			put(t, st, slot(4, 4+1<<16), b.Finish(&h, frame.Plain))
			return []string{slot(4, 4)}
		}, ""},
		"the format": {func(t testing.TB, st store.Store) []string {
			del(t, st, layout.FormatKey)
			return []string{layout.FormatKey}
		}, "there is a log"},
		"a bit of the format": {func(t testing.TB, st store.Store) []string {
			flip(t, st, layout.FormatKey, 0)
			return []string{layout.FormatKey}
		}, "without it nobody can read"},
		"all manifests": {func(t testing.TB, st store.Store) []string {
			for info, err := range st.List(t.Context(), layout.ManifestPrefix, nil) {
				if err != nil {
					t.Fatal(err)
				}
				del(t, st, info.Key)
			}
			return []string{layout.ManifestPrefix, slot(1, 1)}
		}, ""},
		"the newest lock": {func(t testing.TB, st store.Store) []string {
			put(t, st, lock, []byte("junk"))
			return []string{lock}
		}, "nobody can lead"},
	} {
		t.Run(name, func(t *testing.T) {
			st := sample(t)
			want := c.harm(t, st)
			slices.Sort(want)
			r := run(t, st)
			var got []string
			for _, p := range r.Problems {
				got = append(got, p.Key)
				if !strings.Contains(p.What, c.says) {
					t.Errorf("%v\ndoes not say %q", p, c.says)
				}
				if p.What == "" || (p.Remedy == "" && !strings.HasPrefix(p.Key, "lock/")) {
					t.Errorf("no remedy: %v", p)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("problems with %q, want %q: %v", got, want, r.Problems)
			}
			if r.OK() {
				t.Error("nothing found")
			}
		})
	}
}

// TestSealsInPages makes more epochs than a manifest has room for.
func TestSealsInPages(t *testing.T) {
	st := memstore.New(nil)
	const epochs = state.MaxInline + 40
	lead(t, st, 1, 1)
	format := newest(t, st)
	id := format.Log
	// Leaders that crashed as soon as they had opened: each epoch is only its seal.
	for e := range fence.Epoch(epochs) {
		if e == 0 {
			continue
		}
		p := fence.Position{Epoch: e, Seq: 1}
		if e == 1 {
			p.Seq = 2
		}
		h := frame.Header{Log: id, Nonce: fence.ID{byte(e), byte(e >> 8), 1}, Position: p}
		put(t, st, layout.DataKey(p), frame.EncodeSeal(&h, e+1))
	}
	compact(t, st, 1)
	m := newest(t, st)
	if len(m.SealPages) == 0 {
		t.Fatalf("the manifest has %d seals and no page of them", len(m.Seals))
	}
	if r := run(t, st); !r.OK() || r.Seals != epochs {
		t.Fatalf("%d seals, %v", r.Seals, r.Problems)
	}
	for _, key := range []string{slot(0, 1), slot(7, 1), slot(39, 1), slot(41, 1)} {
		body := get(t, st, key)
		del(t, st, key)
		r := run(t, st)
		if len(r.Problems) != 1 || r.Problems[0].Key != key {
			t.Errorf("%s deleted: %v", key, r.Problems)
		}
		put(t, st, key, body)
	}
	// What else is left of the epoch does not hide that its seal is missing.
	del(t, st, slot(7, 1))
	put(t, st, slot(7, 5), make([]byte, frame.HeaderSize))
	if r := run(t, st); len(r.Problems) != 1 || r.Problems[0].Key != slot(7, 1) {
		t.Errorf("%v", r.Problems)
	}
}

// TestNotes: what crashes and late requests leave behind is no damage.
func TestNotes(t *testing.T) {
	st := sample(t)
	id := newest(t, st).Log
	seal := func(p fence.Position, next fence.Epoch) {
		h := frame.Header{Log: id, Nonce: fence.ID{9}, Position: p}
		put(t, st, layout.DataKey(p), frame.EncodeSeal(&h, next))
	}
	// A zombie opener's seals, in holes left by pruning and behind a genuine seal.
	seal(fence.Position{Epoch: 1, Seq: 1}, 5)
	seal(fence.Position{Epoch: 2, Seq: 9}, 7)
	seal(fence.Position{Epoch: 3, Seq: 8}, 7)
	// A killed leader's requests, behind a gap at the tail; a zombie's, void.
	put(t, st, slot(4, 6), []byte("never acknowledged"))
	put(t, st, slot(3, 9), []byte("void"))
	// Junk manifests and locks in pruned holes, an upload that was never named.
	put(t, st, "manifest/"+layout.FormatNumber(1)+".json", []byte("junk"))
	put(t, st, layout.SegmentKey(layout.Compactor, 1, "00000000-0000-0000-0000-000000000000"), []byte("x"))
	put(t, st, "tmp/left", []byte("x"))
	put(t, st, "somebody/else.txt", []byte("x"))
	put(t, st, "lock/"+layout.FormatNumber(2)+".json", get(t, st, "lock/"+layout.FormatNumber(1)+".json"))
	put(t, st, "compactor-lock/readme", []byte("x"))
	r := run(t, st)
	for _, p := range r.Problems {
		if !strings.HasPrefix(p.Key, "lock/") { // the copied lock is unreadable, and the newest
			t.Errorf("not damage: %v", p)
		}
	}
	all := fmt.Sprint(r.Notes)
	for _, want := range []string{"somebody/else.txt", "compactor-lock/readme", "segments and lists of 1 bytes are named by no manifest", "void", slot(4, 4) + ": 1 objects of 18 bytes lie behind", "are folded"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note of %q in %v", want, r.Notes)
		}
	}
	if r.Objects[verify.KindUnknown].Objects != 2 || r.Objects[verify.KindTmp].Objects != 1 {
		t.Errorf("%+v", r.Objects)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	st := sample(t)
	for i := range 20 {
		put(t, st, fmt.Sprintf("junk-%d", i), nil)
	}
	r, err := verify.Run(t.Context(), st, &verify.Options{MaxFindings: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) != 3 || r.MoreNotes < 17 {
		t.Errorf("%d notes and %d more", len(r.Notes), r.MoreNotes)
	}
}

func TestStoreFailure(t *testing.T) {
	st := sample(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := verify.Run(ctx, st, nil); !errors.Is(err, context.Canceled) || r == nil || !r.OK() {
		t.Fatal(r, err)
	}
}

// An opener that had much to read has put a seal far ahead, and died. Its leader goes on.
func TestSealFarAhead(t *testing.T) {
	st := sample(t)
	far := fence.Position{Epoch: 4, Seq: 4 + 1<<17}
	h := frame.Header{Log: newest(t, st).Log, Nonce: fence.ID{9}, Position: far}
	put(t, st, layout.DataKey(far), frame.EncodeSeal(&h, 9))
	if r := run(t, st); !r.OK() {
		t.Error(r.Problems)
	}
}
