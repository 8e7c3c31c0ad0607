package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// TestRepairBesideOthers: a repair from a backup sleeps before one of its requests, for each of them. Meanwhile somebody else repairs the
// log, and it lives on for months: what was damaged is folded and pruned, other leaders have come. The repair wakes, and puts its object
// back. That changes nothing that anybody reads, no leader and no compactor meets it, and a compactor deletes it again.
func TestRepairBesideOthers(t *testing.T) {
	log := logtest.New(t, logtest.Format(), nil)
	l := begun(t, log.Mem)
	w, err := writer.Open(t.Context(), log.Mem, fence.NewToken(l.epoch+1), nil)
	if err == nil {
		_, err = w.Append(t.Context(), [][]byte{[]byte("last")})
	}
	if err != nil {
		t.Fatal(err)
	}
	l.epoch++
	to := named("backup")
	if _, err := backup.Make(t.Context(), log.Mem, to, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil { // it notes the tail: nobody takes a lost end for the tail
		t.Fatal(err)
	}
	sound, copies, met := objects(t, log.Mem), objects(t, to), map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(sound)) {
		kind := layout.KindOf(key)
		if copies[key] == nil || kind == layout.KindLock || kind == layout.KindFormat || met[kind] > test.Of(0, 1<<20) {
			continue
		}
		for _, gone := range []bool{false, true} {
			for n := int64(1); ; n += int64(test.Of(13, 1)) {
				src := log.Fork(t, nil).Mem
				l := &life{t: t, st: src, epoch: l.epoch, n: 1000}
				if gone {
					if err := src.Delete(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				} else {
					fixture.Put(t, src, key, damages["half is lost"](bytes.Clone(sound[key])))
				}
				o := &verify.Options{Repair: true}
				r, err := verify.Run(t.Context(), src, o)
				if err != nil {
					t.Fatal(err)
				}
				if r.OK() { // by itself
					break
				}
				requests, want := atomic.Int64{}, []string(nil)
				slow := faultstore.New(src, nil)
				slept := slow.BeforeFirst(func(faultstore.Op) bool { return requests.Add(1) == n }, func(context.Context) {
					if _, left, err := repaired(t, to, src, verify.Options{}); err != nil || left > 0 {
						t.Fatalf("%s: repaired by somebody else: %d left, %v", key, left, err)
					}
					for range 2 {
						l.lead()
						l.compact()
					}
					l.lead()
					want = contents(t, src)
				})
				err = backup.Repair(t.Context(), to, slow, r, o)
				if !slept() {
					if err != nil || !r.OK() {
						t.Errorf("%s, gone %t: %v", key, gone, err)
					}
					break
				}
				met[kind]++
				what := fmt.Sprintf("%s, gone %t, asleep before request %d (%v)", key, gone, n, err)
				whole(t, src, &verify.Options{})
				if got := contents(t, src); !slices.Equal(got, want) {
					t.Fatalf("%s: %d records are read, want %d", what, len(got), len(want))
				}
				l.compact()
				if kind != layout.KindFile && kind != layout.KindSegment && kind != layout.KindList && objects(t, src)[key] != nil && len(sound[key]) > 128 {
					t.Errorf("%s: it stays", what)
				}
				l.lead()
				l.compact()
				if got := contents(t, src); !slices.Equal(got[:len(want)], want) || len(got) != len(want)+3 {
					t.Fatalf("%s: %d records are read later, want %d", what, len(got), len(want)+3)
				}
				whole(t, src, &verify.Options{})
			}
		}
	}
	if met[layout.KindData] == 0 || met[layout.KindSegment] == 0 || met[layout.KindFile] == 0 || met[layout.KindManifest] == 0 {
		t.Errorf("met %v", met)
	}
}
