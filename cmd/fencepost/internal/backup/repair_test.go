package backup_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
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
