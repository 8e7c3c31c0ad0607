package delta_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// cut refuses the listings of the Delta log to a client: it dies after what it has created.
func cut(st *faultstore.Store, client string) {
	st.SetHook(func(op faultstore.Op) faultstore.Fault {
		if op.Client == client && op.Kind == faultstore.List && strings.HasSuffix(op.Key, "_delta_log/") {
			return faultstore.Fault{Drop: true, Err: &store.Error{Op: "list", Kind: store.ErrDenied}}
		}
		return faultstore.Fault{}
	})
}

// A publisher sleeps between the listing of a load and its GET of version 2. Meanwhile the version is
// deleted, and somebody who dies creates another one in the hole. What the publisher reports is in the
// table.
//
// guard:delta-listed. Without this check: a publisher lists the Delta log, whose newest version is 8,
// and sleeps; others publish up to 300 and delete version 8; a zombie creates another version 8 in the
// hole; the publisher reads that, and reports what nobody else reads.
func TestVersionThatWasListedIsReplaced(t *testing.T) {
	inRivalry(t, func(t *testing.T, r *rivals) {
		const key = "_delta_log/00000000000000000002.json"
		r.publish(0)
		dead, p := r.publisher("dead", 0), r.publisher("p", 0)
		r.round(dead)
		r.round(p)
		r.publish(1) // version 2
		commitTo(r.T, r.writers[0], []order{{ID: 1}})
		listed := false
		replaced := r.root.BeforeFirst(func(op faultstore.Op) bool {
			listed = listed || op.Client == "p" && op.Kind == faultstore.List
			return listed && op.Client == "p" && op.Kind == faultstore.Get && op.Key == key
		}, func(context.Context) {
			for range 7 {
				r.publish(1)
			}
			time.Sleep(8 * day)
			r.publish(1) // version 10; those before the checkpoint of version 8 are deleted
			cut(r.root, "dead")
			if got, err := dead.Publish(context.Background()); got.Versions != 1 || !errors.Is(err, store.ErrDenied) {
				t.Errorf("%+v, %v: there is nothing in the hole, so this tests nothing", got, err)
			}
		})
		if got := r.round(p); !replaced() || got.Version != 11 {
			t.Errorf("%+v, want version 11; version 2 is replaced: %v", got, replaced())
		}
		r.complete(11)
	})
}

// A publisher sleeps before it lets go of what is old. Meanwhile the version that it knows is deleted,
// and somebody who dies creates another one in the hole, and a checkpoint of that. Its hold is newer
// than those of the versions within the retention.
//
// guard:delta-tidy-newest. Without this rule: a publisher knows version 8 and sleeps; others publish up
// to 300 and delete version 8; a zombie pins the newest manifest, and creates another version 8 in the
// hole, and its checkpoint; the publisher wakes, takes this version for the oldest, and releases the
// pins of older manifests; versions 200 to 300 name these; a compactor deletes files that version 300
// has.
func TestTidyAfterAVersionWasReplaced(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		open := func(name string) func() {
			p := k.publisher(k.Faulty.Client(name), nil)
			p.CheckpointEvery(1)
			return func() { k.publish(p) }
		}
		other, p := open("other"), open("p")
		dead := k.publisher(k.Faulty.Client("dead"), nil)
		dead.CheckpointEvery(1)
		file := k.rows(1)
		other()
		k.publish(dead) // it knows version 1
		file = k.rows(1, file)
		other()
		time.Sleep(day) // so that there may be something to let go of
		lists := 0
		slept := k.Faulty.BeforeFirst(func(op faultstore.Op) bool {
			if op.Client != "p" || op.Kind != faultstore.List || op.Key != "file/_delta_log/" {
				return false
			}
			lists++
			return lists == 2
		}, func(context.Context) {
			file = k.rows(1, file)
			k.compact()
			other()
			time.Sleep(8 * day)
			file = k.rows(1, file)
			k.compact()
			other() // version 4, which names only this file; those before version 3 are deleted
			k.rows(1, file)
			k.prune()
			cut(k.Faulty, "dead")
			if got, err := dead.Publish(context.Background()); got.Versions != 1 || !errors.Is(err, store.ErrDenied) || !k.Has(checkpointName(2)) {
				t.Errorf("%+v, %v: there is no checkpoint in the hole, so this tests nothing", got, err)
			}
		})
		p()
		k.prune()
		if !slept() || !k.Has(commitName(4)) || k.Has(commitName(5)) || !k.Has(file) {
			t.Errorf("%s is there: %v; version 4, the newest one, names it; it slept: %v; pinned are %v", file, k.Has(file), slept(), k.pins())
		}
	})
}
