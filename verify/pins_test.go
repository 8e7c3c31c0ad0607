package verify_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
)

func openLog(t testing.TB, st store.Store) *state.Log {
	t.Helper()
	log, err := state.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// retained compacts, merges all, gives up the records before an offset and prunes.
func retained(t testing.TB, st store.Store, before uint64) {
	t.Helper()
	c, err := compactor.New(st, &compactor.Options{FanIn: 2, SegmentBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	token := fence.NewToken(uint64(newest(t, st).Roles[layout.Compactor].Epoch) + 1)
	for i := range 3 {
		if i == 1 {
			if err := c.Truncate(t.Context(), token, before); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Once(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
}

// held is a log of which a version is pinned that has almost nothing in common with
// the newest: a segment and files of its own, and one that is named only for the sake
// of what was behind its floor.
type heldLog struct {
	*memstore.Store
	pin                   *state.Pin
	segment, behind, file string
}

func newHeldLog(t testing.TB, opts *state.PinOptions) heldLog {
	t.Helper()
	l := heldLog{Store: memstore.New(nil)}
	files := table(t, l, 1, 2)
	compact(t, l, 1)
	second := table(t, l, 2, 1)
	pin, err := openLog(t, l).Pin(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	l.pin, l.segment, l.file = pin, newest(t, l).Segments[0].Key, files[0]
	if pin.Manifest().Floor.Offset != 1 {
		t.Fatal(pin.Manifest().Floor)
	}
	table(t, l, 3, 1, append(files, second...)...)
	retained(t, l, 3)
	lead(t, l, 4, 1)
	retained(t, l, 3)
	m := newest(t, l)
	l.behind = m.Segments[0].Key
	if m.Start != 3 || m.Held() > 1 || slices.ContainsFunc(m.Segments, func(s state.Segment) bool { return s.Key == l.segment }) {
		t.Fatalf("start %d, %+v", m.Start, m.Segments)
	}
	return l
}

// What a pinned version refers to is checked, also if the newest does not refer to it
// any more.
func TestPinned(t *testing.T) {
	named, brief := &state.PinOptions{Name: "backup-2026-11"}, &state.PinOptions{TTL: time.Hour}
	for name, c := range map[string]struct {
		opts *state.PinOptions
		harm func(t testing.TB, l heldLog) (key string)
		says string // of a problem
		note string
	}{
		"whole":          {named, func(testing.TB, heldLog) string { return "" }, "", ""},
		"segment":        {named, func(t testing.TB, l heldLog) string { del(t, l, l.segment); return l.segment }, `refers to it, which is pinned as "backup-2026-11"`, ""},
		"bit":            {named, func(t testing.TB, l heldLog) string { flip(t, l, l.segment, frame.HeaderSize+1); return l.segment }, "checksum", ""},
		"file":           {named, func(t testing.TB, l heldLog) string { del(t, l, l.file); return l.file }, "the file is missing", ""},
		"file cut":       {named, func(t testing.TB, l heldLog) string { put(t, l, l.file, []byte("x")); return l.file }, "another size", ""},
		"for a while":    {brief, func(t testing.TB, l heldLog) string { del(t, l, l.segment); return l.segment }, "", "the segment is missing"},
		"its manifest":   {named, func(t testing.TB, l heldLog) string { del(t, l, layout.ManifestKey(l.pin.Version())); return "" }, "", "holds what is not there"},
		"behind":         {named, func(t testing.TB, l heldLog) string { del(t, l, l.behind); return l.behind }, "missing", ""},
		"a bit behind":   {named, func(t testing.TB, l heldLog) string { flip(t, l, l.behind, frame.HeaderSize+1); return l.behind }, "checksum", ""},
		"nobody's pin":   {named, func(t testing.TB, l heldLog) string { del(t, l, l.segment); del(t, l, l.file); unpin(t, l); return "" }, "", ""},
		"late copy":      {named, func(t testing.TB, l heldLog) string { del(t, l, l.file); late(t, l); return "" }, "", "nobody relies on this pin"},
		"pin given back": {brief, func(t testing.TB, l heldLog) string { del(t, l, l.file); unpin(t, l); return "" }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newHeldLog(t, c.opts)
			key := c.harm(t, l)
			r := run(t, l)
			var got []string
			for _, p := range r.Problems {
				got = append(got, p.Key)
				if !strings.Contains(p.What, c.says) {
					t.Errorf("%v does not say %q", p, c.says)
				}
			}
			if c.says == "" {
				key = ""
			}
			if key == "" && len(got) > 0 || key != "" && !slices.Equal(got, []string{key}) {
				t.Errorf("problems with %q, want %q: %v", got, key, r.Problems)
			}
			noted := slices.ContainsFunc(r.Notes, func(f verify.Finding) bool { return strings.Contains(f.What, c.note) })
			if c.note != "" && !noted {
				t.Errorf("no note %q: %v", c.note, r.Notes)
			}
			if name == "whole" && (r.Pins != 1 || r.Segments != len(newest(t, l).Segments)+1) {
				t.Errorf("%d pins, %d segments were read", r.Pins, r.Segments)
			}
		})
	}
}

func unpin(t testing.TB, l heldLog) {
	t.Helper()
	if err := l.pin.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// late gives a pin back, and then a copy of the request that created it lands.
func late(t testing.TB, l heldLog) {
	t.Helper()
	pins, err := openLog(t, l).Pins(t.Context())
	if err != nil || len(pins) != 1 || pins[0].Renewals == 0 {
		t.Fatal(pins, err)
	}
	key := pins[0].Object.Key
	body, _, err := store.ReadAll(t.Context(), l, key, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	unpin(t, l)
	put(t, l, key, regexp.MustCompile(`"renewals": *\d+`).ReplaceAll(body, []byte(`"renewals": 0`)))
}

// A pin that is given back while what it holds is looked for says nothing of damage.
func TestPinReleasedMeanwhile(t *testing.T) {
	l := newHeldLog(t, &state.PinOptions{Name: "backup"})
	r := run(t, &meanwhile{Store: l, key: l.segment, do: func() {
		if err := l.pin.Release(context.Background()); err != nil {
			t.Error(err)
		}
		retained(t, l, 3)
		if _, err := l.Get(t.Context(), l.segment, nil); err == nil {
			t.Error("the segment is still there")
		}
	}})
	if !r.OK() || len(r.Notes) > 0 {
		t.Error(r.Problems, r.Notes)
	}
}

// A segment of which a part is given up is damaged: that is told, and does not
// keep verify going round for ever.
func TestDamagePartlyGivenUp(t *testing.T) {
	for _, harm := range []func(testing.TB, store.Store, string){del, func(t testing.TB, st store.Store, key string) { flip(t, st, key, frame.HeaderSize+1) }} {
		st := sample(t)
		c, err := compactor.New(st, nil)
		if err == nil {
			err = c.Truncate(t.Context(), fence.NewToken(2), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		key := newest(t, st).Segments[0].Key
		harm(t, st, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := verify.Run(ctx, st, nil)
		if err != nil || len(r.Problems) != 1 || r.Problems[0].Key != key {
			t.Errorf("%v, %v", r.Problems, err)
		}
	}
}
