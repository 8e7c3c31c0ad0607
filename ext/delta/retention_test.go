package delta_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

const day = 24 * time.Hour

// prune folds, and deletes what nothing holds once the grace has passed.
func (k *lake) prune() {
	k.Helper()
	for range 3 {
		k.compact()
		time.Sleep(time.Minute)
	}
}

// before calls f once, before the first request of a client that fits.
func (k *lake) before(client string, kind faultstore.Kind, prefix string, f func()) {
	k.Faulty.BeforeFirst(func(op faultstore.Op) bool {
		return op.Client == client && op.Kind == kind && strings.HasPrefix(op.Key, prefix)
	}, func(context.Context) { f() })
}

// guard:delta-unpin. Nobody publishes for eight days. Then an edit removes a file. The version that
// named the file can be read for seven more days.
//
// guard:delta-inside. Without this rule: the retention is seven days, and version 7 is the newest for
// eight days; an edit removes file F, and is folded; a publisher creates version 8; version 7 is older
// than seven days, so its pin is released; a compactor deletes F; a query that began on version 7 just
// before does not find F.
func TestRetentionAfterSilence(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		a := k.rows(1)
		k.publish(p)
		time.Sleep(8 * day)
		k.rows(1, a)
		k.compact()
		if r := k.publish(p); r.Version != 2 || len(k.pins()) != 2 {
			t.Fatalf("%+v, pins %v", r, k.pins())
		}
		for range 6 {
			k.prune()
			if !k.Has(a) {
				t.Fatalf("%s is gone, and version 1 names it", a)
			}
			time.Sleep(day)
			k.publish(p)
		}
		time.Sleep(2 * day)
		k.publish(p)
		k.prune()
		if k.Has(a) {
			t.Errorf("%s is still there; pinned are %v", a, k.pins())
		}
	})
}

// A file lives from one edit to the next, and both are folded before they are published. Its version
// can be read until its own retention has passed, not only that of the version before it.
//
// guard:delta-run-holds. A Delta version names a manifest. The pin of this manifest keeps all files
// that later manifests drop. Without this rule: version 1 names manifest 5; edit 4 adds file F, edit 5
// removes it, and manifest 9 drops it; version 2, of edit 4, has F but names manifest 9; the publisher
// dies, and a day later another one creates version 3, of edit 5; version 1 leaves the retention, and
// pin 5 is released; F is deleted, although engines may read version 2 for another day.
func TestRetentionOfAShortLife(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(k.Faulty.Client("p"), nil)
		k.rows(1)
		k.publish(p)
		time.Sleep(day) // so that a new pin is due
		short := k.rows(1)
		k.rows(1, short)
		k.compact() // and nothing is pruned yet, so the publisher can read each edit
		k.before("p", faultstore.Put, commitName(3), func() { time.Sleep(day) })
		if r := k.publish(p); r.Versions != 2 || len(k.pins()) != 2 {
			t.Fatalf("%+v, pins %v", r, k.pins())
		}
		if name := strings.TrimPrefix(short, "file/"); !slices.Contains(k.version(2).paths(), name) || slices.Contains(k.version(3).paths(), name) {
			t.Fatal("the file does not live for one version, so this tests nothing")
		}
		time.Sleep(6*day + time.Hour) // version 2 is seven days old
		k.publish(p)
		k.prune()
		if !k.Has(short) {
			t.Errorf("%s is gone, and version 2 names it; pinned are %v", short, k.pins())
		}
		time.Sleep(day)
		k.publish(p)
		k.prune()
		if k.Has(short) {
			t.Errorf("%s is still there; pinned are %v", short, k.pins())
		}
	})
}

// Another program has written a checkpoint that is wrong. What is needed to build the table from the
// checkpoint before that is not deleted.
//
// guard:delta-clean. From such a checkpoint the oldest Delta version within the retention can be
// computed. A newer checkpoint may be another program's, and wrong. Without this check: the oldest
// version within the retention is 250; checkpoint 100 is right, and checkpoint 200 does not fit its
// commit; cleanup deletes all commits and checkpoints before version 250; nothing is left from which
// version 250 can be computed, so no publisher can read the table any more.
//
// guard:delta-clean-right. Log cleanup deletes what is before a checkpoint. A publisher that remembers
// all commits since that checkpoint does not read them again. Without this check: the oldest version
// within the retention is 250, and checkpoint 100 is right; another program writes a wrong checkpoint
// of version 200; a publisher that remembers versions 200 to 250 deletes all commits and checkpoints
// before 200; nothing right is left from which version 250 can be computed.
func TestCleanupAfterAWrongCheckpoint(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		var hooks []string
		p := k.publisher(nil, told(&hooks))
		p.CheckpointEvery(4)
		k.versions(p, 6)
		k.Put(checkpointName(5), k.Body(checkpointName(4)))
		time.Sleep(8 * day)
		k.rows(1)
		if r := k.publish(p); r.Version != 7 {
			t.Fatalf("%+v", r)
		}
		for v := range int64(8) {
			if there := k.Has(commitName(v)); there != (v >= 4) {
				t.Errorf("version %d is there: %v", v, there)
			}
		}
		k.rows(1)
		if r := k.publish(k.publisher(nil, told(&hooks))); r.Version != 8 || r.Files != len(k.live()) {
			t.Errorf("%+v, want %d files", r, len(k.live()))
		}
	})
}

// A read that fails is no other program's work.
func TestCleanupThatCannotRead(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, nil)
		p.CheckpointEvery(4)
		k.versions(p, 6)
		time.Sleep(8 * day)
		k.rows(1)
		var hooks []string
		var failed []error
		o := told(&hooks)
		o.Hooks.Failed = func(err error) { failed = append(failed, err) }
		next := k.publisher(k.Faulty, o)
		next.CheckpointEvery(4)
		reads := 0
		refuse(k.Faulty, func(op faultstore.Op) bool {
			if op.Kind == faultstore.Get && op.Key == checkpointName(4) {
				reads++
			}
			return reads > 1 && op.Kind == faultstore.Get && strings.Contains(op.Key, "_delta_log/0")
		})
		k.publish(next)
		if len(hooks) > 0 || len(failed) == 0 || !errors.Is(failed[0], store.ErrDenied) || !k.Has(commitName(0)) {
			t.Errorf("reads %d, told is %q, failed is %v", reads, hooks, failed)
		}
		k.Faulty.SetHook(nil)
		k.rows(1)
		if k.publish(next); k.Has(commitName(0)) {
			t.Error("nothing is deleted when it can be read again")
		}
	})
}

// A publisher has pinned a version of the log, and has not created the version that names the pin.
// Another one lets go of what is old, and keeps that pin.
//
// guard:delta-unpin. Without this check: publisher A pins manifest 9, and is about to create a Delta
// version that names it; publisher B cleans up, and releases all pins of the table but its own; an edit
// removes file F, and a compactor deletes F; A's create is applied, and its version names F. All pins
// of a table have one name, so each pin is released by its key.
func TestPinThatNoVersionNamesYet(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		a, b := k.publisher(k.Faulty.Client("a"), nil), k.publisher(k.Faulty.Client("b"), nil)
		k.rows(1)
		k.publish(a)
		k.publish(b)
		time.Sleep(4 * day)
		k.rows(1)
		k.publish(a)
		k.publish(b)
		time.Sleep(4 * day) // so that a new pin is due, and old ones are let go of
		newest := slices.Max(k.pins())
		gate, over := make(chan struct{}), make(chan delta.Report, 1)
		var file string
		pinning := k.Faulty.BeforeFirst(func(op faultstore.Op) bool {
			return op.Client == "a" && op.Kind == faultstore.List && op.Key == "pin/"
		}, func(context.Context) {
			file = k.rows(1)
			k.compact()
			sent := make(chan struct{})
			go func() {
				once := sync.OnceFunc(func() { close(sent) })
				defer once() // then there is no pin of b, which is seen below
				k.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
					if op.Client == "b" && op.Kind == faultstore.Put && strings.Contains(op.Key, "_delta_log/0") {
						once()
						<-gate
					}
				})
				r, err := b.Publish(context.Background())
				if err != nil {
					t.Error(err)
				}
				over <- r
			}()
			<-sent
		})
		k.publish(a)
		if !pinning() || slices.Max(k.pins()) <= newest {
			t.Errorf("pinned are %v, and %d before: there is no pin of b", k.pins(), newest)
		}
		k.rows(1, file)
		k.prune()
		close(gate)
		r := <-over
		if r.Version < 3 || !slices.Contains(k.version(r.Version).paths(), strings.TrimPrefix(file, "file/")) {
			t.Fatalf("%+v", r)
		}
		if !k.Has(file) {
			t.Errorf("%s is gone, and version %d names it; pinned are %v", file, r.Version, k.pins())
		}
	})
}
