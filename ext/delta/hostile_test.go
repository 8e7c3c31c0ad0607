package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// isCommit reports whether an operation creates a version of the table.
func isCommit(op faultstore.Op) bool {
	return op.Kind == faultstore.Put && strings.Contains(op.Key, "_delta_log/") && strings.HasSuffix(op.Key, ".json")
}

// A publisher's caller gives up while a version is being created. The version is there all the
// same, and it names the publisher's pin: the publisher does not release that pin.
//
// guard:delta-pin-named. Without this check: publisher A pins manifest 9, and creates Delta version 2,
// which names it; the create is applied, but A's caller gives up before the answer; A reads that the
// table names manifest 9 already, and releases its pin; an edit removes file F, and is folded; version
// 1 leaves the retention, so the older pin is released too; a compactor deletes F, which version 2
// names.
func TestPinOfAnUnknownCreate(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		st := faultstore.New(k.Mem, &faultstore.Options{Clock: clock.Go()})
		p := k.publisher(st, nil)
		a := k.rows(1)
		k.publish(p)
		time.Sleep(24 * time.Hour) // a pin is due
		k.compact()
		b := k.rows(1, a)
		ctx, cancel := context.WithCancel(context.Background())
		st.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
			if isCommit(op) {
				cancel()
			}
		})
		st.SetHook(func(op faultstore.Op) faultstore.Fault {
			if isCommit(op) {
				return faultstore.Fault{Err: faultstore.ErrTimeout} // the answer is lost
			}
			return faultstore.Fault{}
		})
		if _, err := p.Publish(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		st.SetAfter(nil)
		st.SetHook(nil)
		held := slices.Max(k.pins()) // for version 2
		if text := string(k.Body(commitName(2))); !strings.Contains(text, fmt.Sprintf(`\"manifest\":%d,`, held)) {
			t.Fatalf("version 2 is %s, and pinned are %v", text, k.pins())
		}
		time.Sleep(24 * time.Hour) // another pin is due
		k.compact()
		k.rows(1, b)
		k.publish(p)
		if got := k.pins(); !slices.Contains(got, held) || slices.Max(got) == held {
			t.Errorf("version 2 is within the retention and holds manifest %d; pinned are %v", held, got)
		}
		time.Sleep(10 * 24 * time.Hour)
		k.compact()
		k.rows(1)
		k.publish(p)
		time.Sleep(10 * 24 * time.Hour)
		k.rows(1)
		k.publish(p)
		if got := k.pins(); slices.Contains(got, held) {
			t.Errorf("version 2 has left the retention; pinned are %v", got)
		}
	})
}

// A log is taken out of the table while a publisher is about to publish it, for the first time or
// again. Nothing is published after that, and no pin is left that would hold the log for ever.
//
// guard:delta-pin-first. A pin keeps all files that were live in its manifest version or later. Without
// this pin: a publisher reads the log, in which file F is live, and pauses; an edit removes F; a
// compactor folds the edit, and deletes F after the grace period; the publisher creates a Delta version
// that names F, and queries do not find F.
//
// guard:delta-farewell. Another publisher's create of that Delta version is refused, and that publisher
// reads that the log was taken out. Without this version: publisher A has pinned a log, and is about to
// publish it for the first time; B unpublishes the log, and releases all pins; A's create is applied;
// no pin holds the files that it names, so a compactor may delete them.
func TestUnpublishWhileOthersPublish(t *testing.T) {
	pins := func(op faultstore.Op) bool { return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "pin/") }
	for name, fits := range map[string]func(faultstore.Op) bool{
		"before the pin":     pins,
		"before the version": func(op faultstore.Op) bool { return isCommit(op) && !strings.Contains(op.Key, "00000.json") },
	} {
		for when, first := range map[string]bool{"the first time": true, "again": false} {
			t.Run(name+" "+when, func(t *testing.T) {
				inLake(t, func(t *testing.T, k *lake) {
					st := faultstore.New(k.Mem, &faultstore.Options{Clock: clock.Go()})
					p := k.publisher(st, nil)
					k.rows(1)
					if !first {
						k.publish(p)
						time.Sleep(24 * time.Hour)
						k.compact()
						k.rows(1)
					}
					st.BeforeFirst(fits, func(context.Context) {
						if _, err := k.publisher(nil, nil).Unpublish(t.Context()); err != nil {
							t.Error(err)
						}
					})
					r, err := p.Publish(t.Context())
					if err != nil || !errors.Is(r.Err(), delta.ErrUnpublished) || r.Files != 0 {
						t.Errorf("%+v, %v", r, err)
					}
					if got := k.pins(); len(got) != 0 {
						t.Errorf("nobody will let go of the pins %v, and the table has %d files", got, r.Files)
					}
				})
			})
		}
	}
}

// One source cannot be read. The others are published as quickly as without it, and what nobody
// needs is let go of.
func TestOneBadSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 2)
		broken := faultstore.New(sources[0].Log, &faultstore.Options{Clock: clock.Go()})
		sources[0].Log = broken
		told := make(chan delta.Report, 10)
		p, err := delta.Open(t.Context(), root, sources, &delta.Options{Settle: logtest.Quick, Clock: clock.Go(), Hooks: delta.Hooks{Published: func(r delta.Report) {
			select {
			case told <- r:
			default: // nobody looks any more
			}
		}}})
		if err != nil {
			t.Fatal(err)
		}
		commitTo(t, all[0], []order{{ID: 1}})
		commitTo(t, all[1], []order{{ID: 1}})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- p.Run(ctx) }()
		<-told
		broken.SetHook(func(faultstore.Op) faultstore.Fault {
			return faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
		})
		time.Sleep(time.Hour)
		for i := range 5 {
			begun := time.Now()
			commitTo(t, all[1], []order{{ID: int64(i)}})
			r := <-told
			if lag := time.Since(begun); lag > 2*time.Second || r.Err() == nil {
				t.Errorf("edit %d came after %v: %v", i, lag, r.Err())
			}
			time.Sleep(time.Second)
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		// Weeks later, what is old is let go of, but for the bad source.
		for i := range 120 {
			time.Sleep(12 * time.Hour)
			commitTo(t, all[1], []order{{ID: int64(i)}})
			if r, err := p.Publish(t.Context()); err != nil || r.Sources[1].Err != nil {
				t.Fatal(r, err)
			}
		}
		if _, _, err := store.Read(t.Context(), root, "_delta_log/00000000000000000000.json", &store.ReadOptions{Limit: 1 << 20}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the log of the table is not cleaned: %v", err)
		}
	})
}

// A source has one bad file among many. The footers of the others are read once, not at each retry.
func TestFootersOfABadSource(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		st := faultstore.New(k.Mem, &faultstore.Options{Clock: clock.Go()})
		p := k.publisher(st, nil)
		k.rows(1)
		k.publish(p)
		for range 40 {
			k.rows(1)
		}
		k.raw([]byte("just some text, long enough"), nil)
		try := func() int {
			before := st.Counts().Of(faultstore.Get, "file/0")
			if r, err := p.Publish(t.Context()); err != nil || !errors.Is(r.Err(), delta.ErrSource) {
				t.Fatal(r, err)
			}
			return st.Counts().Of(faultstore.Get, "file/0") - before
		}
		first := try()
		if again := try(); first < 20 || again > 20 {
			t.Errorf("the first try has read %d footers, and the second one %d", first, again)
		}
	})
}

// One source of a table is idle, and its hold is old. Not each Publish lists the log of the table to
// look for what is old.
func TestTidiesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, sources, all := fleet(t, 2)
		st := faultstore.New(root, &faultstore.Options{Clock: clock.Go()})
		p, err := delta.Open(t.Context(), st, sources, &delta.Options{Settle: logtest.Quick, Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		commitTo(t, all[0], []order{{ID: 1}})
		commitTo(t, all[1], []order{{ID: 1}})
		if _, err := p.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * day)
		var before int
		for i := range 12 {
			if i == 2 {
				before = st.Counts().Of(faultstore.List, "_delta_log/")
			}
			if _, err := p.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := st.Counts().Of(faultstore.List, "_delta_log/") - before; n > 0 {
			t.Errorf("10 rounds with nothing to do have listed the log of the table %d times", n)
		}
	})
}
