package verify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
)

func TestWholeLog(t *testing.T) {
	l := sample(t)
	r := run(t, l.Mem)
	if !r.OK() || r.MoreProblems != 0 {
		t.Fatalf("problems in a whole log: %v", r.Problems)
	}
	if r.First != 0 || r.End != 15 || r.Segments != 1 || r.Seals != 3 || r.Slots != 7 || r.Locks != 1 ||
		r.Floor != (fence.Position{Epoch: 3, Seq: 4}) || r.Tail != (fence.Position{Epoch: 4, Seq: 4}) {
		t.Errorf("%+v", r)
	}
	if r.Objects[layout.KindFormat].Objects != 1 || r.Objects[layout.KindSegment].Objects != 1 || r.Objects[layout.KindLock].Objects != 1 || r.Objects[layout.KindUnknown].Objects != 0 {
		t.Errorf("%+v", r.Objects)
	}
}

// The end of a run is told once, with what Run returns, also if it could not read.
func TestVerified(t *testing.T) {
	var told []verify.Verified
	opts := &verify.Options{Hooks: verify.Hooks{Verified: func(v verify.Verified) { told = append(told, v) }}}
	good, err := verify.Run(t.Context(), sample(t).Mem, opts)
	if err != nil {
		t.Fatal(err)
	}
	none, err := verify.Run(t.Context(), memstore.New(nil), opts)
	if want := []verify.Verified{{Report: good}, {Report: none, Err: err}}; !errors.Is(err, manifest.ErrNotInitialized) || !slices.Equal(told, want) {
		t.Errorf("it told %+v, want %+v", told, want)
	}
	opts.MaxFindings = -1
	if _, err := verify.Run(t.Context(), sample(t).Mem, opts); !errors.Is(err, verify.ErrOptions) || len(told) != 2 {
		t.Errorf("%v, and it told %d runs", err, len(told))
	}
}

func TestNoLogAndFuture(t *testing.T) {
	if _, err := verify.Run(t.Context(), memstore.New(nil), nil); !errors.Is(err, manifest.ErrNotInitialized) {
		t.Fatal(err)
	}
	l := newLog(t)
	if r := run(t, l.Mem); !r.OK() || r.End != 0 {
		t.Fatalf("%+v", r)
	}
	l.Put(layout.FormatKey, document.Sum(layout.FormatKey, []byte(`{"format": 2}`)))
	if _, err := verify.Run(t.Context(), l.Mem, nil); !errors.Is(err, fence.ErrFormat) {
		t.Fatal(err)
	}
}

func TestDamage(t *testing.T) {
	segment := func(l *logtest.Log) string { return l.Newest().Segments[0].Key }
	manifestKey := func(l *logtest.Log) string { return layout.ManifestKey(l.Newest().Version) }
	lock := "lock/" + layout.FormatNumber(1) + ".json"
	for name, c := range map[string]struct {
		// harm does the damage and returns the keys that must be named, in any order.
		harm func(l *logtest.Log) []string
		says string
	}{
		"a bit of a record": {func(l *logtest.Log) []string {
			flip(l, slot(3, 5), frame.HeaderSize+1)
			return []string{slot(3, 5)}
		}, "body checksum"},
		"a bit of a header": {func(l *logtest.Log) []string {
			flip(l, slot(4, 1), 60)
			return []string{slot(4, 1)}
		}, "header checksum"},
		"two objects": {func(l *logtest.Log) []string {
			flip(l, slot(3, 5), frame.HeaderSize+1)
			flip(l, slot(4, 2), -1)
			return []string{slot(3, 5), slot(4, 2)}
		}, "checksum"},
		"neighbours": {func(l *logtest.Log) []string {
			flip(l, slot(3, 5), 20)
			flip(l, slot(3, 6), 20)
			return []string{slot(3, 5), slot(3, 6)}
		}, "checksum"},
		"a truncated object": {func(l *logtest.Log) []string {
			b := l.Body(slot(4, 2))
			l.Put(slot(4, 2), b[:len(b)-1])
			return []string{slot(4, 2)}
		}, "the header says"},
		"an empty object": {func(l *logtest.Log) []string {
			l.Put(slot(4, 2), nil)
			return []string{slot(4, 2)}
		}, "empty"},
		"an object before the hint": {func(l *logtest.Log) []string {
			del(l, slot(4, 2))
			return []string{slot(4, 2)}
		}, "it is missing: manifest"},
		"the last object": {func(l *logtest.Log) []string {
			del(l, slot(4, 3))
			return []string{slot(4, 3)}
		}, "acknowledged up to 4/4"},
		"an object of an earlier epoch": {func(l *logtest.Log) []string {
			del(l, slot(3, 5))
			return []string{slot(3, 5)}
		}, "it is missing"},
		"a seal on the chain": {func(l *logtest.Log) []string {
			del(l, slot(3, 7))
			return []string{slot(3, 7)}
		}, "it is missing"},
		"a seal before the floor": {func(l *logtest.Log) []string {
			del(l, slot(1, 4))
			return []string{slot(1, 4)}
		}, "the seal that ended epoch 1 is missing"},
		"the first seal": {func(l *logtest.Log) []string {
			del(l, slot(0, 1))
			return []string{slot(0, 1)}
		}, "the seal that ended epoch 0 is missing"},
		"another seal": {func(l *logtest.Log) []string {
			l.Put(slot(1, 4), l.Seal(logtest.At(1, 4), 2))
			return []string{slot(1, 4)}
		}, "another seal"},
		"a segment": {func(l *logtest.Log) []string {
			key := segment(l)
			del(l, key)
			return []string{key}
		}, "records 0 to 8"},
		"a bit of a segment": {func(l *logtest.Log) []string {
			key := segment(l)
			flip(l, key, frame.HeaderSize+10)
			return []string{key}
		}, "checksum"},
		"a bit of a segment's index": {func(l *logtest.Log) []string {
			key := segment(l)
			flip(l, key, -1)
			return []string{key}
		}, "segment index"},
		"a truncated segment": {func(l *logtest.Log) []string {
			key := segment(l)
			l.Put(key, l.Body(key)[:100])
			return []string{key}
		}, "the manifest says"},
		"a truncated manifest": {func(l *logtest.Log) []string {
			key := manifestKey(l)
			l.Put(key, l.Body(key)[:300])
			return []string{key}
		}, "the newest manifest is damaged"},
		"an old manifest": {func(l *logtest.Log) []string {
			m := l.Newest()
			if m.PruneMark+1 >= m.Version {
				l.Fatal("there is no old manifest")
			}
			l.Put(layout.ManifestKey(m.PruneMark+1), []byte("{"))
			return []string{layout.ManifestKey(m.PruneMark + 1)}
		}, "compactor"},
		"an old manifest is missing": {func(l *logtest.Log) []string {
			m := l.Newest()
			del(l, layout.ManifestKey(m.Version-1))
			return []string{layout.ManifestKey(m.Version - 1)}
		}, "missing"},
		"another log's object": {func(l *logtest.Log) []string {
			l.Format.Log = fence.ID{7}
			l.Put(slot(4, 2), l.Data(frame.Point{Position: logtest.At(4, 2), Offset: 13}, "x"))
			return []string{slot(4, 2)}
		}, "it belongs to log 07"},
		"a gap in the offsets": {func(l *logtest.Log) []string {
			rewrite(l, slot(4, 2), 1)
			return []string{slot(4, 2)}
		}, "its first offset is 14"},
		"another object in its place": {func(l *logtest.Log) []string {
			rewrite(l, slot(4, 2), 0)
			return []string{slot(4, 3)} // the next one no longer follows it
		}, "follows an object with checksum"},
		"a rewritten end": {func(l *logtest.Log) []string {
			rewrite(l, slot(4, 3), 0)
			return []string{manifestKey(l)} // its hint has the checksum
		}, "its hint at 4/4"},
		"sealed in the midst": {func(l *logtest.Log) []string {
			l.Put(slot(4, 2), l.Seal(logtest.At(4, 2), 9))
			return []string{slot(4, 2)}
		}, "leaves epoch 4 here"},
		"a seal with void objects after it": {func(l *logtest.Log) []string {
			flip(l, slot(3, 7), 20)
			l.Put(slot(3, 8), l.Data(frame.Point{Position: logtest.At(3, 8), Offset: 99}, "void"))
			return []string{slot(3, 7)}
		}, "checksum"},
		"an object farther ahead than any window": {func(l *logtest.Log) []string {
			l.Put(slot(4, 4+1<<16), l.Data(frame.Point{Position: logtest.At(4, 4+1<<16), Offset: 99}, "x"))
			return []string{slot(4, 4)}
		}, ""},
		"the format": {func(l *logtest.Log) []string {
			del(l, layout.FormatKey)
			return []string{layout.FormatKey}
		}, "there is a log"},
		"a bit of the format": {func(l *logtest.Log) []string {
			flip(l, layout.FormatKey, 0)
			return []string{layout.FormatKey}
		}, "without it nobody can read"},
		"all manifests": {func(l *logtest.Log) []string {
			l.Remove(l.Keys(layout.ManifestPrefix)...)
			return []string{layout.ManifestPrefix, slot(1, 1)}
		}, ""},
		"the newest lock": {func(l *logtest.Log) []string {
			l.Put(lock, []byte("junk"))
			return []string{lock}
		}, "nobody can lead"},
	} {
		t.Run(name, func(t *testing.T) {
			l := sample(t)
			want := c.harm(l)
			slices.Sort(want)
			r := run(t, l.Mem)
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
	l := newLog(t)
	const epochs = state.MaxInline + 40
	l.Lead(1)
	// Leaders that crashed as soon as they had opened: each epoch is only its seal.
	for e := range fence.Epoch(epochs) {
		if e == 0 {
			continue
		}
		p := fence.Position{Epoch: e, Seq: 1}
		if e == 1 {
			p.Seq = 2
		}
		l.Put(layout.DataKey(p), l.Seal(p, e+1))
	}
	compact(l)
	m := l.Newest()
	if len(m.SealPages) == 0 {
		t.Fatalf("the manifest has %d seals and no page of them", len(m.Seals))
	}
	if r := run(t, l.Mem); !r.OK() || r.Seals != epochs {
		t.Fatalf("%d seals, %v", r.Seals, r.Problems)
	}
	for _, key := range []string{slot(0, 1), slot(7, 1), slot(39, 1), slot(41, 1)} {
		body := l.Body(key)
		del(l, key)
		r := run(t, l.Mem)
		if len(r.Problems) != 1 || r.Problems[0].Key != key {
			t.Errorf("%s deleted: %v", key, r.Problems)
		}
		l.Put(key, body)
	}
	// What else is left of the epoch does not hide that its seal is missing.
	del(l, slot(7, 1))
	l.Put(slot(7, 5), make([]byte, frame.HeaderSize))
	if r := run(t, l.Mem); len(r.Problems) != 1 || r.Problems[0].Key != slot(7, 1) {
		t.Errorf("%v", r.Problems)
	}
}

// TestNotes: what crashes and late requests leave in the store is no damage.
func TestNotes(t *testing.T) {
	l := sample(t)
	seal := func(p fence.Position, next uint64) { l.Put(layout.DataKey(p), l.Seal(p, fence.Epoch(next))) }
	// A zombie opener's seals, in holes left by pruning and after a genuine seal.
	seal(logtest.At(1, 1), 5)
	seal(logtest.At(2, 9), 7)
	seal(logtest.At(3, 8), 7)
	// A killed leader's requests, after a gap at the tail; a zombie's, void.
	l.Put(slot(4, 6), []byte("never acknowledged"))
	l.Put(slot(3, 9), []byte("void"))
	// Junk manifests and locks in pruned holes, an upload that was never named.
	l.Put("manifest/"+layout.FormatNumber(1)+".json", []byte("junk"))
	l.Put(layout.SegmentKey(layout.Compactor, 1, "00000000-0000-0000-0000-000000000000"), []byte("x"))
	l.Put("tmp/left", []byte("x"))
	l.Put("somebody/else.txt", []byte("x"))
	l.Put("lock/"+layout.FormatNumber(2)+".json", l.Body("lock/"+layout.FormatNumber(1)+".json"))
	l.Put("compactor-lock/readme", []byte("x"))
	r := run(t, l.Mem)
	for _, p := range r.Problems {
		if !strings.HasPrefix(p.Key, "lock/") { // the copied lock is unreadable, and the newest
			t.Errorf("not damage: %v", p)
		}
	}
	all := fmt.Sprint(r.Notes)
	for _, want := range []string{"somebody/else.txt", "compactor-lock/readme", "segments and lists that no manifest names: 1 object, 1 B", "void below data/", slot(4, 4) + ": after this slot, where the log ends: 1 object, 18 B", "folded below data/"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note of %q in %v", want, r.Notes)
		}
	}
	if r.Objects[layout.KindUnknown].Objects != 2 || r.Objects[layout.KindTmp].Objects != 1 {
		t.Errorf("%+v", r.Objects)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	l := sample(t)
	for i := range 20 {
		l.Put(fmt.Sprintf("junk-%d", i), nil)
	}
	r, err := verify.Run(t.Context(), l.Mem, &verify.Options{MaxFindings: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) != 3 || r.MoreNotes < 17 {
		t.Errorf("%d notes and %d more", len(r.Notes), r.MoreNotes)
	}
}

func TestOptions(t *testing.T) {
	_, err := verify.Run(t.Context(), memstore.New(nil), &verify.Options{MaxFindings: -1})
	if !errors.Is(err, verify.ErrOptions) || !strings.Contains(err.Error(), "MaxFindings -1") {
		t.Error(err)
	}
	if r, err := verify.Run(t.Context(), nil, nil); !errors.Is(err, verify.ErrOptions) || r == nil {
		t.Error(r, err)
	}
}

func TestStoreFailure(t *testing.T) {
	l := sample(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := verify.Run(ctx, l.Mem, nil); !errors.Is(err, context.Canceled) || r == nil || !r.OK() {
		t.Fatal(r, err)
	}
}

// An opener has put a seal far ahead, since it had much to read, and has crashed. The leader
// goes on.
func TestSealFarAhead(t *testing.T) {
	l := sample(t)
	far := logtest.At(4, 4+1<<17)
	l.Put(layout.DataKey(far), l.Seal(far, 9))
	if r := run(t, l.Mem); !r.OK() {
		t.Error(r.Problems)
	}
}
