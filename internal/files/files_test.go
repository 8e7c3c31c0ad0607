package files

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

var (
	logA = fence.ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	logB = fence.ID{1}
)

var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}

func keys(t *testing.T, st store.Store, prefix string) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), prefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Key)
	}
	slices.Sort(all)
	return all
}

// TestView: two logs have the same key, and neither sees the other's object.
//
// guard:files-own. Without this: logs A and B share a store; epoch 5 of A is folded, and A's compactor
// lists all files; it finds B's file of epoch 3, which A's table does not name; A's compactor deletes
// that file as an orphan, and B's table names a file that is gone.
func TestView(t *testing.T) {
	st := memstore.New(nil)
	a, b := View(st, logA), View(st, logB)
	key := layout.FileKey(3, "00000000-0000-7000-8000-000000000001", ".parquet")
	for _, v := range []struct {
		store.Store
		body string
	}{{a, "of A"}, {b, "of B"}} {
		info, err := v.Upload(t.Context(), key, strings.NewReader(v.body), &store.UploadOptions{Create: true})
		if err != nil || info.Key != key {
			t.Fatal(info.Key, err)
		}
	}
	if info, err := a.Put(t.Context(), "tmp/x", []byte("shared"), nil); err != nil || info.Key != "tmp/x" {
		t.Fatal(info.Key, err)
	}
	want := []string{
		"01000000000000000000000000000000/00000000000000000003/00000000-0000-7000-8000-000000000001.parquet",
		"101112131415161718191a1b1c1d1e1f/00000000000000000003/00000000-0000-7000-8000-000000000001.parquet",
		"_fencepost/tmp/x",
	}
	if got := keys(t, st, ""); !slices.Equal(got, want) {
		t.Errorf("stored under %q", got)
	}
	obj, err := a.Get(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(obj.Body)
	if obj.Body.Close() != nil || obj.Key != key || string(body) != "of A" {
		t.Errorf("%s: %q", obj.Key, body)
	}
	if got := keys(t, b, layout.FilePrefix); !slices.Equal(got, []string{key}) {
		t.Errorf("listed %q", got)
	}
	if got := keys(t, b, layout.TmpPrefix); !slices.Equal(got, []string{"tmp/x"}) {
		t.Errorf("listed %q", got)
	}
	for info, err := range a.List(t.Context(), layout.FilePrefix, &store.ListOptions{StartAfter: key}) {
		if err == nil && info.Key <= key {
			continue // it is a hint
		}
		t.Error(info.Key, err)
	}
	if err := a.Delete(t.Context(), key, "tmp/x"); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, st, ""); !slices.Equal(got, want[:1]) {
		t.Errorf("left are %q", got)
	}
	if a.Traits() != st.Traits() {
		t.Error(a.Traits())
	}
}

// teller has uploads that were broken off, and rules.
type teller struct {
	store.Store
	uploads []string
	rules   []store.Expiry
}

func (s *teller) AbortUploads(_ context.Context, prefix string, doomed func(store.Info) bool) (n int, err error) {
	s.uploads = slices.DeleteFunc(s.uploads, func(key string) bool {
		gone := strings.HasPrefix(key, prefix) && doomed(store.Info{Key: key})
		if gone {
			n++
		}
		return gone
	})
	return n, nil
}

func (s *teller) Expiries(context.Context, string) ([]store.Expiry, error) {
	return slices.Clone(s.rules), nil
}

// TestViewAborts: a log ends its own uploads, and sees the rules for its own files.
func TestViewAborts(t *testing.T) {
	name := "/00000000000000000003/00000000-0000-7000-8000-000000000001"
	st := &teller{Store: memstore.New(nil), uploads: []string{logA.String() + name, logB.String() + name, "_fencepost/tmp/x"}}
	a := View(st, logA)
	var asked []string
	for _, prefix := range []string{layout.FilePrefix, layout.TmpPrefix} {
		n, err := a.(store.UploadAborter).AbortUploads(t.Context(), prefix, func(info store.Info) bool {
			asked = append(asked, info.Key)
			return true
		})
		if n != 1 || err != nil {
			t.Error(prefix, n, err)
		}
	}
	if !slices.Equal(asked, []string{"file" + name, "tmp/x"}) || !slices.Equal(st.uploads, []string{logB.String() + name}) {
		t.Errorf("asked for %q, left are %q", asked, st.uploads)
	}
	st.rules = []store.Expiry{{Rule: "all", Prefix: ""}, {Rule: "old", Prefix: logA.String() + "/0000"}}
	rules, err := a.(store.ExpiryTeller).Expiries(t.Context(), "")
	if err != nil || len(rules) != 2 || rules[0].Prefix != "file/" || rules[1].Prefix != "file/0000" {
		t.Errorf("%+v, %v", rules, err)
	}
	plain := View(struct{ store.Store }{memstore.New(nil)}, logA)
	if n, err := plain.(store.UploadAborter).AbortUploads(t.Context(), layout.FilePrefix, nil); n != 0 || err != nil {
		t.Error(n, err)
	}
	if rules, err := plain.(store.ExpiryTeller).Expiries(t.Context(), ""); len(rules) != 0 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, %v: a store that cannot be asked has not said that it has none", rules, err)
	}
}

// TestGoldenMark: what docs/format.md says of the mark.
func TestGoldenMark(t *testing.T) {
	m := Mark{Format: 1, Log: logA, Home: "s3://logs/orders", Nonce: fence.ID{0x20, 0x21}}
	b, err := document.Encode(key(logA), m)
	if err != nil {
		t.Fatal(err)
	}
	if want := fixture.Golden(t, "mark.json", b); !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
}

// guard:files-mark. Without this check: an operator starts a writer with the wrong prefix as the store
// for files; the writer uploads a file there and commits it; all readers use the right store, and do
// not find the file that the table names.
//
// guard:files-home. Without this check: somebody copies a log; the copy has the same id, and the same
// folder for files; the original's leader commits file f in epoch 9; the copy has another epoch 9,
// which is sealed and folded; its table lacks f, so its compactor takes f for an orphan of epoch 9, and
// deletes it.
func TestCheck(t *testing.T) {
	st := memstore.New(nil)
	err := Check(t.Context(), st, logA, "", nil)
	fixture.WantErr(t, err, ErrStore, "has no _fencepost/101112131415161718191a1b1c1d1e1f.json")
	if _, err := Create(t.Context(), st, logA, store.Traits{Name: "s3://logs/orders"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, home := range []string{"", "s3://logs/orders"} {
		if err := Check(t.Context(), st, logA, home, nil); err != nil {
			t.Error(home, err)
		}
	}
	err = Check(t.Context(), st, logA, "s3://logs/copy", nil)
	fixture.WantErr(t, err, ErrStore, "belong to the log in s3://logs/orders, and this is s3://logs/copy")
	fixture.WantErr(t, Check(t.Context(), st, logB, "", nil), ErrStore, "has no _fencepost/01")

	body, _, err := store.Read(t.Context(), st, key(logA), &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{body[:len(body)-1], document.Sum(key(logA), bytes.Replace(body, []byte("1011"), []byte("1012"), 1)), make([]byte, maxMark+1)} {
		fixture.Put(t, st, key(logA), bad)
		fixture.WantErr(t, Check(t.Context(), st, logA, "", nil), fence.ErrCorrupt, key(logA))
	}
	// A mark that cannot be read is replaced.
	seen, err := See(t.Context(), st, logA, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Replace(t.Context(), st, logA, store.Traits{Name: ""}, nil, seen, nil), Check(t.Context(), st, logA, "", nil)); err != nil {
		t.Error(err)
	}
	if err := Remove(t.Context(), st, logA, nil); err != nil {
		t.Fatal(err)
	}
	fixture.WantErr(t, Check(t.Context(), st, logA, "", nil), ErrStore, "has no")
}

// TestMarkOnce: Create leaves a mark as it is, also if the store's answer was lost. Replace replaces only
// the mark that was seen, and no later one.
//
// guard:files-mark-once. Without this condition: two restores copy one backup to two places, with the
// same store for files; the first reads that there is no mark, and sleeps; the second ends, and its log
// lives; the first wakes and replaces the mark; both logs have leaders of the same epochs; the
// compactor of the first log takes committed files of the second one for orphans, and deletes them.
//
// guard:files-mark-seen. Without this condition: the command for the log in A hangs; the operator
// copies the log to B instead, and runs the command for B; log B lives; the first command wakes and
// gives the files to A; the compactor of A takes committed files of B for orphans, and deletes them.
func TestMarkOnce(t *testing.T) {
	st, inner := fixture.Faults(nil)
	home := func(want string) {
		t.Helper()
		if m, _, err := Read(t.Context(), inner, logA, nil); err != nil || m.Home != want || m.Log != logA {
			t.Errorf("%+v, %v; want %s", m, err, want)
		}
	}
	absent, err := See(t.Context(), st, logA, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The mark is there, and the answer says that nobody knows.
	st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Err: faultstore.ErrReset}}))
	first, err := Create(t.Context(), st, logA, store.Traits{Name: "s3://logs/one"}, nil, nil)
	if err != nil || first.Home != "s3://logs/one" {
		t.Fatal(first, err)
	}
	st.SetHook(nil)
	if m, err := Create(t.Context(), st, logA, store.Traits{Name: "s3://logs/two"}, nil, nil); err != nil || m.Home != first.Home || m.Nonce != first.Nonce {
		t.Errorf("%+v, %v; want %+v", m, err, first)
	}
	home("s3://logs/one")
	fixture.WantErr(t, Replace(t.Context(), st, logA, store.Traits{Name: "s3://logs/two"}, nil, absent, nil), ErrStore, "was changed by somebody else meanwhile")
	home("s3://logs/one")

	early, err := See(t.Context(), st, logA, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Replace(t.Context(), st, logA, store.Traits{Name: "s3://logs/two"}, nil, early, nil); err != nil {
		t.Fatal(err)
	}
	home("s3://logs/two")
	fixture.WantErr(t, Replace(t.Context(), st, logA, store.Traits{Name: "s3://logs/three"}, nil, early, nil), ErrStore, "was changed by somebody else meanwhile")
	home("s3://logs/two")
	st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Get, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	if _, err := See(t.Context(), st, logA, nil); !errors.Is(err, store.ErrDenied) {
		t.Error(err)
	}
}

// TestProbeOnce: a store that many logs share is probed by the first of them, and again when
// that was long ago.
func TestProbeOnce(t *testing.T) {
	now := time.Now()
	st, inner := fixture.Faults(nil)
	fixture.Put(t, st, "_fencepost/note.txt", []byte("somebody's"))
	fixture.Put(t, st, "_fencepost/damaged.json", []byte("{}"))
	first, err := Probe(t.Context(), st, quickProbe, now, nil)
	if err != nil || len(first.Kept) == 0 {
		t.Fatal(first, err)
	}
	if got := keys(t, inner, ""); len(got) != 2 {
		t.Errorf("left are %q", got)
	}
	if _, err := Create(t.Context(), st, logA, store.Traits{Name: ""}, first, nil); err != nil {
		t.Fatal(err)
	}
	st.ResetCounts()
	again, err := Probe(t.Context(), st, quickProbe, now, nil)
	if err != nil || fixture.JSON(t, again) != fixture.JSON(t, first) || st.Counts().Of(faultstore.Put, "") != 0 {
		t.Error(again, err)
	}
	late, err := Probe(t.Context(), st, quickProbe, now.Add(2*probe.MaxAge), nil)
	if err != nil || st.Counts().Of(faultstore.Put, "") == 0 || late.At.Equal(first.At) {
		t.Error("it was not probed again:", late, err)
	}
	st.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.List, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	if _, err := Probe(t.Context(), st, quickProbe, now, nil); !errors.Is(err, store.ErrDenied) {
		t.Error(err)
	}
}
