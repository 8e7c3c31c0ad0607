package backup_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// repaired verifies a log, repairs it from a backup, and returns how many problems are left.
func repaired(t *testing.T, to, st store.Store, o verify.Options) (r *verify.Report, left int, err error) {
	t.Helper()
	o.Repair = true
	if r, err = verify.Run(t.Context(), st, &o); err == nil {
		err = backup.Repair(t.Context(), to, st, r, &o)
	}
	for _, p := range r.Problems {
		if !p.Repaired {
			left++
		}
	}
	return r, left, err
}

// TestRepairFrom: an object of a log is damaged in some way, or gone. A backup has it, and nothing else is written. The log has gone
// on since.
func TestRepairFrom(t *testing.T) {
	src, lake, to := named("log"), named("lake"), named("backup")
	l := apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	l.lead()
	o := verify.Options{Files: lake}
	copies, met := objects(t, to), map[string]int{}
	ways := maps.Clone(damages)
	ways["gone"] = nil
	for _, st := range []store.Store{src, lake} {
		for key, body := range objects(t, st) {
			name := key
			if st == lake {
				_, rest, _ := strings.Cut(key, "/")
				name = layout.FilePrefix + rest
			}
			kind := layout.KindOf(name)
			if copies[name] == nil || kind == layout.KindLock || kind == layout.KindFormat {
				continue
			}
			for way, damage := range ways {
				if damage == nil {
					if err := st.Delete(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				} else {
					fixture.Put(t, st, key, damage(bytes.Clone(body)))
				}
				broken, before := objects(t, st), objects(t, to)
				dry := o
				dry.DryRun = true
				if r, left, err := repaired(t, to, src, dry); err != nil || left > 0 && r.Problems[0].Repair == "" || !maps.EqualFunc(objects(t, st), broken, bytes.Equal) {
					t.Errorf("%s, %s: without a change: %d left, %+v, %v", name, way, left, r.Problems, err)
				}
				r, left, err := repaired(t, to, src, o)
				if err != nil || left > 0 {
					t.Fatalf("%s, %s: %+v, %v", name, way, r.Problems, err)
				}
				if len(r.Problems) > 0 {
					met[kind]++
				}
				whole(t, src, &o)
				broken[key] = objects(t, st)[key]
				if !maps.EqualFunc(objects(t, st), broken, bytes.Equal) || !maps.EqualFunc(objects(t, to), before, bytes.Equal) {
					t.Errorf("%s, %s: something else was written", name, way)
				}
				fixture.Put(t, st, key, body)
			}
		}
	}
	if len(met) < 4 || met[layout.KindData] < 6 || met[layout.KindFile] < 6 {
		t.Errorf("met %v", met)
	}
}

// alone reports whether verify has repaired everything without the backup: seals, which it makes again.
func alone(r *verify.Report) bool {
	for _, p := range r.Problems {
		if strings.HasPrefix(p.Repair, "copy it from ") {
			return false
		}
	}
	return true
}

// TestRepairFromOther: what a backup has is damaged too, or of another history or log. Nothing is replaced.
func TestRepairFromOther(t *testing.T) {
	src, other, to := newLog(t), newLog(t), named("backup")
	for _, st := range []store.Store{src, other} {
		begun(t, st).long('a')
	}
	if _, err := backup.Make(t.Context(), other, to, nil); err != nil {
		t.Fatal(err)
	}
	sound := objects(t, src)
	for key, body := range sound {
		if kind := layout.KindOf(key); kind != layout.KindData || objects(t, to)[key] == nil {
			continue
		}
		bad := damages["a bit in its middle"](bytes.Clone(body))
		fixture.Put(t, src, key, bad)
		r, left, err := repaired(t, to, src, verify.Options{})
		if left == 0 && !alone(r) || left > 0 && err != nil && !errors.Is(err, fence.ErrCorrupt) || left > 0 && !bytes.Equal(objects(t, src)[key], bad) {
			t.Errorf("%s: %d left, %v", key, left, err)
		}
		fixture.Put(t, src, key, body)
	}
	own := named("own")
	if _, err := backup.Make(t.Context(), src, own, nil); err != nil {
		t.Fatal(err)
	}
	for key, body := range sound {
		if kind := layout.KindOf(key); kind != layout.KindSegment && kind != layout.KindData || objects(t, own)[key] == nil {
			continue
		}
		bad := damages["a bit in its middle"](bytes.Clone(body))
		fixture.Put(t, src, key, bad)
		fixture.Put(t, own, key, damages["half is lost"](bytes.Clone(body)))
		if r, left, err := repaired(t, own, src, verify.Options{}); left == 0 && !alone(r) || left > 0 && err != nil && !errors.Is(err, fence.ErrCorrupt) || left > 0 && !bytes.Equal(objects(t, src)[key], bad) {
			t.Errorf("%s: %d left, %v", key, left, err)
		}
		fixture.Put(t, src, key, body)
		fixture.Put(t, own, key, body)
	}
}

// guard:repair-history. Without this check: a log is backed up, and restored elsewhere; the original goes on, its records are truncated, and
// it is backed up again; the newest manifest of the restored log rots, which has the same number; a repair from the second backup fits the
// chain, since no manifest has more of it yet; the restored log loses the records that only the original has given up.
func TestRepairFromAnotherHistory(t *testing.T) {
	src, other, to := newLog(t), named("other"), named("backup")
	l := begun(t, src)
	newest := func(st store.Store) string {
		return slices.Max(slices.DeleteFunc(slices.Collect(maps.Keys(objects(t, st))), func(key string) bool { return layout.KindOf(key) != layout.KindManifest }))
	}
	slow, published := faultstore.New(src, nil), make(chan struct{}, 9)
	slow.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
		if op.Kind == faultstore.Put && layout.KindOf(op.Key) == layout.KindManifest {
			published <- struct{}{}
		}
	})
	w, err := writer.Open(t.Context(), slow, fence.NewToken(l.epoch+1), &writer.Options{Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	<-published // the epoch; nothing later says how far the log has come
	copyOf(t, src, other)
	c, err := compactor.New(src, &compactor.Options{Token: fence.NewToken(l.epoch)})
	if err == nil {
		err = c.Truncate(t.Context(), 5)
	}
	if err == nil {
		_, err = w.Append(t.Context(), [][]byte{[]byte("of the original")})
	}
	if err == nil {
		err = w.Close(t.Context())
	}
	if err == nil {
		_, err = backup.Make(t.Context(), src, to, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for l.epoch += 100; newest(other) < newest(to); l.epoch++ {
		w, err := writer.Open(t.Context(), other, fence.NewToken(l.epoch+1), &writer.Options{Checkpoint: -1})
		if err == nil {
			_, err = w.Append(t.Context(), [][]byte{[]byte("of the restored")})
		}
		if err == nil {
			err = w.Close(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want, key := contents(t, other), newest(other)
	if key != newest(to) {
		t.Fatalf("the manifests are %s and %s: the test needs the same number", key, newest(to))
	}
	bad := damages["half is lost"](bytes.Clone(objects(t, other)[key]))
	fixture.Put(t, other, key, bad)
	if _, left, err := repaired(t, to, other, verify.Options{}); left == 0 || err == nil || !strings.Contains(err.Error(), "another history") || !bytes.Equal(objects(t, other)[key], bad) {
		t.Errorf("%d left, %v; the log has %d records, want %d", left, err, len(contents(t, other)), len(want))
	}
	// The newest manifest of the backup's own log.
	fixture.Put(t, src, key, damages["half is lost"](objects(t, src)[key]))
	if _, left, err := repaired(t, to, src, verify.Options{}); left > 0 || err != nil {
		t.Errorf("%d left, %v", left, err)
	}
	whole(t, src, &verify.Options{})
}

// TestRepairReadsAll: a verification reads only a part, or no files, or lists one finding. What is damaged in the backup, too, is not
// copied all the same, and the result of the verification is told once.
func TestRepairReadsAll(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src).long('a')
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	sound, tried := objects(t, src), 0
	for key, body := range sound {
		if kind := layout.KindOf(key); kind != layout.KindSegment && kind != layout.KindFile || objects(t, to)[key] == nil {
			continue
		}
		bad := damages["half is lost"](bytes.Clone(body))
		fixture.Put(t, src, key, bad)
		fixture.Put(t, to, key, damages["a bit in its middle"](bytes.Clone(body)))
		for _, o := range []verify.Options{{Part: 1, Parts: 1 << 30}, {NoContent: true}, {MaxFindings: 1}} {
			told := 0
			o.Hooks.Verified = func(verify.Verified) { told++ }
			if r, left, err := repaired(t, to, src, o); left == 0 || told != 1 || !bytes.Equal(objects(t, src)[key], bad) {
				t.Errorf("%s, %+v: told %d times, %+v, %v", key, o, told, r.Problems, err)
			}
			tried++
		}
		fixture.Put(t, src, key, body)
		fixture.Put(t, to, key, body)
	}
	if tried < 12 {
		t.Errorf("tried %d", tried)
	}
}
