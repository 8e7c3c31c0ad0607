package backup_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
)

// TestBackupBesideOthers: a backup, the first to its place or an update, sleeps before one of its requests, for each of them. Meanwhile the
// log lives on for months and is pruned, zombies put seals into the holes, and perhaps another backup to the same place is complete.
// The backup is whole and has all that was acknowledged before it began, or it says that another one has overtaken it, and that one is.
func TestBackupBesideOthers(t *testing.T) {
	log := logtest.New(t, logtest.Format(), nil)
	l := begun(t, log.Mem)
	old := named("backup")
	if _, err := backup.Make(t.Context(), log.Mem, old, nil); err != nil {
		t.Fatal(err)
	}
	l.lead()
	met := 0
	for _, update := range []bool{false, true} {
		for _, other := range []bool{false, true} {
			for _, at := range []string{"log", "backup"} {
				for n := int64(1 + met%3); ; n += int64(test.Of(7, 1)) {
					f := log.Fork(t, nil)
					l, to := &life{t: t, st: f.Mem, epoch: l.epoch, n: 1000}, named("backup")
					if update {
						copyOf(t, old, to)
					}
					want := contents(t, f.Mem)
					var requests atomic.Int64
					places := map[string]store.Store{"log": f.Mem, "backup": to}
					slow := faultstore.New(places[at], nil)
					places[at] = slow
					slept := slow.BeforeFirst(func(faultstore.Op) bool { return requests.Add(1) == n }, func(context.Context) {
						before := f.Objects()
						for range 2 {
							l.lead()
							l.compact()
						}
						for key, body := range before {
							if p, ok := layout.ParseDataKey(key); ok && !f.Has(key) && len(body) > 128 {
								f.Put(key, f.Seal(p, 99))
							}
						}
						if other {
							if _, err := backup.Make(t.Context(), f.Mem, to, nil); err != nil {
								t.Fatal(err)
							}
						}
					})
					_, err := backup.Make(t.Context(), places["log"], places["backup"], nil)
					if !slept() {
						break
					}
					met++
					what := fmt.Sprintf("update %t, other %t, asleep before request %d to the %s (%v)", update, other, n, at, err)
					if err != nil && (!other || !strings.Contains(err.Error(), "another backup to this place has begun meanwhile")) {
						t.Error(what)
						continue
					}
					whole(t, to, &verify.Options{Copy: true})
					if got := contents(t, to); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
						t.Errorf("%s: %d records, want %d", what, len(got), len(want))
					}
					if p := pins(t, f.Mem); len(p) > 0 {
						t.Errorf("%s: the pins %q stay", what, p)
					}
				}
			}
		}
	}
	if met < 40 {
		t.Errorf("met %d", met)
	}
}

// TestRestoreBesideOthers: a restore sleeps before one of its requests, for each of them. Meanwhile another restore to the same place makes
// the log, which lives on for months and is pruned. The first one wakes and ends, and the log is as before.
func TestRestoreBesideOthers(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	met := 0
	for n := int64(1); ; n += int64(test.Of(7, 1)) {
		back := named("back")
		var requests atomic.Int64
		var want []string
		var l *life
		slow := faultstore.New(back, nil)
		slept := slow.BeforeFirst(func(op faultstore.Op) bool { return requests.Add(1) == n }, func(context.Context) {
			r, err := backup.Restore(t.Context(), to, back, quick)
			if err != nil {
				t.Errorf("%d: %v", n, err)
				return
			}
			l = &life{t: t, st: back, epoch: r.Epoch, n: 1000}
			for range 3 {
				l.lead()
				l.compact()
			}
			l.lead()
			want = contents(t, back)
		})
		_, err := backup.Restore(t.Context(), to, slow, quick)
		if !slept() {
			break
		}
		met++
		if err == nil || l == nil {
			t.Errorf("asleep before request %d: %v", n, err)
			continue
		}
		whole(t, back, &verify.Options{})
		l.lead()
		l.compact()
		whole(t, back, &verify.Options{})
		if got := contents(t, back); len(got) != len(want)+3 || !slices.Equal(got[:len(want)], want) {
			t.Errorf("asleep before request %d (%v): %d records, want %d", n, err, len(got), len(want)+3)
		}
	}
	if met < 10 {
		t.Errorf("met %d", met)
	}
}
