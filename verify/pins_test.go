package verify_test

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/verify"
)

// retained compacts, merges all, truncates the records before an offset and prunes.
func retained(l *logtest.Log, before uint64) {
	l.Helper()
	c := compactorOf(l, compactor.Options{FanIn: 2, SegmentBytes: 4096})
	for i := range 3 {
		if i == 1 {
			if err := c.Truncate(context.Background(), before); err != nil {
				l.Fatal(err)
			}
		}
		if _, err := c.Once(context.Background()); err != nil {
			l.Fatal(err)
		}
	}
}

// heldLog is a log with a pinned version that has almost nothing in common with the newest
// one: a segment and files of its own. The newest manifest names one segment only for it,
// with a record after its floor.
type heldLog struct {
	*logtest.Log
	pin                  *state.Pin
	segment, after, file string
}

func newHeldLog(t testing.TB, opts *state.PinOptions) heldLog {
	t.Helper()
	l := heldLog{Log: newLog(t)}
	files := table(l.Log, 2)
	compact(l.Log)
	second := table(l.Log, 1)
	pin, err := l.State.Pin(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	l.pin, l.segment, l.file = pin, l.Newest().Segments[0].Key, files[0]
	if pin.Manifest().Floor.Offset != 1 {
		t.Fatal(pin.Manifest().Floor)
	}
	table(l.Log, 1, append(files, second...)...)
	retained(l.Log, 3)
	l.Lead(1)
	retained(l.Log, 3)
	m := l.Newest()
	l.after = m.Segments[0].Key
	if m.Start != 3 || m.Held() > 1 || slices.ContainsFunc(m.Segments, func(s state.Segment) bool { return s.Key == l.segment }) {
		t.Fatalf("start %d, %+v", m.Start, m.Segments)
	}
	return l
}

// What a pinned version refers to is checked, also if the newest does not refer to it
// any more.
//
// guard:pin-relied. A pin without a name that was renewed at most once is an exception: it may be of a
// snapshot that is being opened, whose maker is about to find out. Without this rule: an operator makes
// a pin for a backup, for 30 days; a lifecycle rule deletes a file of the pinned version; verify says
// that all is well; the backup is found to be incomplete when it is needed.
func TestPinned(t *testing.T) {
	named, brief := &state.PinOptions{Name: "backup-2026-11"}, &state.PinOptions{TTL: time.Hour}
	month := &state.PinOptions{Name: "backup-2026-11", TTL: 720 * time.Hour}
	for name, c := range map[string]struct {
		opts *state.PinOptions
		harm func(l heldLog) (key string)
		says string // of a problem
		note string
	}{
		"whole":           {named, func(heldLog) string { return "" }, "", ""},
		"segment":         {named, func(l heldLog) string { del(l.Log, l.segment); return l.segment }, `refers to it, which is pinned as "backup-2026-11"`, ""},
		"bit":             {named, func(l heldLog) string { flip(l.Log, l.segment, frame.HeaderSize+1); return l.segment }, "checksum", ""},
		"file":            {named, func(l heldLog) string { del(l.Log, l.file); return l.file }, "the file is missing", ""},
		"file cut":        {named, func(l heldLog) string { l.Put(l.file, []byte("x")); return l.file }, "the file has 1 bytes, the table says 4", ""},
		"segment, month":  {month, func(l heldLog) string { del(l.Log, l.segment); return l.segment }, `refers to it, which is pinned as "backup-2026-11"`, ""},
		"file, month":     {month, func(l heldLog) string { del(l.Log, l.file); return l.file }, "the file is missing", ""},
		"manifest, month": {month, func(l heldLog) string { key := layout.ManifestKey(l.pin.Version()); del(l.Log, key); return key }, "it is missing; version", ""},
		"renewed":         {brief, func(l heldLog) string { renew(l); del(l.Log, l.file); return l.file }, "the file is missing", ""},
		"for a while":     {brief, func(l heldLog) string { del(l.Log, l.segment); return l.segment }, "", "it is missing"},
		"its manifest":    {named, func(l heldLog) string { key := layout.ManifestKey(l.pin.Version()); del(l.Log, key); return key }, "it is missing; version", ""},
		"after its floor": {named, func(l heldLog) string { del(l.Log, l.after); return l.after }, "missing", ""},
		"a bit after it":  {named, func(l heldLog) string { flip(l.Log, l.after, frame.HeaderSize+1); return l.after }, "checksum", ""},
		"nobody's pin":    {named, func(l heldLog) string { del(l.Log, l.segment); del(l.Log, l.file); unpin(l); return "" }, "", ""},
		"late copy":       {named, func(l heldLog) string { del(l.Log, l.file); late(l); return "" }, "", "nobody relies on this pin"},
		"pin given back":  {brief, func(l heldLog) string { del(l.Log, l.file); unpin(l); return "" }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newHeldLog(t, c.opts)
			key := c.harm(l)
			r := run(t, l.Mem)
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
			if name == "whole" && (r.Pins != 1 || r.Segments != len(l.Newest().Segments)+1) {
				t.Errorf("%d pins, %d segments were read", r.Pins, r.Segments)
			}
		})
	}
}

// A page of a pinned version is lost. The newest version does not name it.
func TestPinnedPage(t *testing.T) {
	for name, opts := range map[string]*state.PinOptions{"named": {Name: "backup"}, "month": {Name: "backup", TTL: 720 * time.Hour}} {
		l := newLog(t)
		files := table(l, 1300)
		compact(l)
		pin, err := l.State.Pin(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		page := pin.Manifest().FilePages[0].Key
		table(l, 1300, files...)
		compact(l)
		if slices.ContainsFunc(l.Newest().FilePages, func(p state.Page[string]) bool { return p.Key == page }) {
			t.Fatal("the newest version has the page still")
		}
		del(l, page)
		r := run(t, l.Mem)
		if !slices.ContainsFunc(r.Problems, func(f verify.Finding) bool {
			return f.Key == page && strings.Contains(f.What, `pinned as "backup"`)
		}) {
			t.Errorf("%s: %v, %v", name, r.Problems, r.Notes)
		}
	}
}

func renew(l heldLog) {
	l.Helper()
	if err := l.pin.Renew(context.Background()); err != nil {
		l.Fatal(err)
	}
}

// A process died while it took a named snapshot. Its pin stands there long past its TTL, and nothing that it names is missing:
// nobody relies on it. verify called the log damaged.
func TestLapsedPin(t *testing.T) {
	for name, opts := range map[string]*state.PinOptions{"lapsed": {Name: "report", TTL: time.Minute}, "held": {Name: "report", TTL: 24 * time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			l := newHeldLog(t, opts)
			time.Sleep(time.Hour)
			del(l.Log, layout.ManifestKey(l.pin.Version()))
			if r := run(t, l.Mem); len(r.Problems) > 0 != (name == "held") {
				t.Errorf("%s: %v", name, r.Problems)
			}
		})
	}
}

// expire is what a compactor does after the TTL, while verify reads.
func expire(l heldLog) {
	l.Helper()
	key := l.pin.Description().Key
	l.Put(key, document.Sum(key, bytes.Replace(l.Body(key), []byte(`"expired": false`), []byte(`"expired": true`), 1)))
}

func unpin(l heldLog) {
	l.Helper()
	if err := l.pin.Release(context.Background()); err != nil {
		l.Fatal(err)
	}
}

// late releases a pin, and then a copy of the request that created it lands.
func late(l heldLog) {
	l.Helper()
	key := l.pin.Description().Key
	body := l.Body(key)
	unpin(l)
	l.Put(key, document.Sum(key, regexp.MustCompile(`"renewals": *\d+`).ReplaceAll(body, []byte(`"renewals": 0`))))
}

// What a pin held is deleted while verify looks for it, since the pin was released: that is
// no damage.
func TestPinReleasedMeanwhile(t *testing.T) {
	for name, end := range map[string]func(l heldLog){"released": unpin, "expired": expire} {
		for _, opts := range []*state.PinOptions{{Name: "backup"}, {TTL: time.Hour}} {
			l := newHeldLog(t, opts)
			renew(l)
			r := run(t, &meanwhile{Store: l.Mem, key: l.segment, do: func() {
				end(l)
				retained(l.Log, 3)
				if _, err := l.Mem.Get(t.Context(), l.segment, nil); err == nil {
					t.Error("the segment is still there")
				}
			}})
			if !r.OK() || len(r.Notes) > 0 {
				t.Error(name, r.Problems, r.Notes)
			}
		}
	}
}

// A segment is damaged of which a part is truncated: that is reported, and verify does not
// begin again for ever.
func TestDamagePartlyTruncated(t *testing.T) {
	for _, harm := range []func(*logtest.Log, string){del, func(l *logtest.Log, key string) { flip(l, key, frame.HeaderSize+1) }} {
		l := sample(t)
		l.Publish(func(m *state.Change) error { return m.Truncate(1) })
		key := l.Newest().Segments[0].Key
		harm(l, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := verify.Run(ctx, l.Mem, nil)
		if err != nil || len(r.Problems) != 1 || r.Problems[0].Key != key {
			t.Errorf("%v, %v", r.Problems, err)
		}
	}
}
