package backup_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
)

// ruled is in a bucket with a rule for a prefix. As s3store does, it tells only rules that concern what it is asked for.
type ruled struct {
	store.Store
	prefix string
}

func (r ruled) Expiries(_ context.Context, prefix string) ([]store.Expiry, error) {
	if !strings.HasPrefix(prefix, r.prefix) && !strings.HasPrefix(r.prefix, prefix) {
		return nil, nil
	}
	return []store.Expiry{{Rule: "tidy", Prefix: r.prefix, What: "deletes objects after 30 days"}}, nil
}

// TestRulesOfTheSecondStore: the bucket of a second store has a rule for a prefix. If that is for the log's own files, a restore is
// refused before anything is copied. If it is for what others keep there, it is not.
func TestRulesOfTheSecondStore(t *testing.T) {
	src, lake, to := named("log"), named("lake"), named("backup")
	apartIn(t, src, lake)
	if _, err := backup.Make(t.Context(), src, to, &backup.Options{Files: lake}); err != nil {
		t.Fatal(err)
	}
	f, err := manifest.ReadFormat(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	for prefix, own := range map[string]bool{"data/staging/": false, layout.ListPrefix: false, layout.FilesDir(f.Log) + "/": true, "": true} {
		back, second := named("back"), named("second")
		_, err := backup.Restore(t.Context(), to, back, &backup.Options{Files: ruled{second, prefix}, Probe: quickProbe})
		if !own {
			if err != nil {
				t.Errorf("a rule for %q: %v", prefix, err)
			}
			continue
		}
		n := len(objects(t, back)) + len(objects(t, second))
		if err == nil || !strings.Contains(err.Error(), "nothing was copied; remove the rule") || n > 0 {
			t.Errorf("a rule for %q: %d objects were written, %v", prefix, n, err)
		}
	}
}

// TestBothAreDamaged: a copy has rotted, and its original is cut. The one does not replace the other: the copy has most of the bytes.
func TestBothAreDamaged(t *testing.T) {
	met := map[string]int{}
	for _, kind := range []string{layout.KindData, layout.KindSegment, layout.KindFile} {
		src, to := newLog(t), named("backup")
		begun(t, src).long('a')
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
		copies := objects(t, to)
		for key, body := range objects(t, src) {
			if layout.KindOf(key) != kind || copies[key] == nil {
				continue
			}
			bad := damages["a bit at its end"](bytes.Clone(body))
			for _, cut := range []string{"it is empty", "half is lost"} {
				fixture.Put(t, src, key, damages[cut](bytes.Clone(body)))
				fixture.Put(t, to, key, bad)
				_, err := backup.Make(t.Context(), src, to, nil)
				if !errors.Is(err, fence.ErrCorrupt) || !bytes.Equal(objects(t, to)[key], bad) {
					t.Errorf("%s, %s: it has %d bytes, want %d: %v", key, cut, len(objects(t, to)[key]), len(bad), err)
				}
				met[kind]++
			}
			fixture.Put(t, src, key, body)
			fixture.Put(t, to, key, body)
		}
		whole(t, to, &verify.Options{Copy: true})
	}
	if len(met) != 3 {
		t.Errorf("met %v", met)
	}
}

// TestResumeWithNewerLocks: a restore is killed after it has copied the locks. The backup is made again, of the same version and with
// newer locks of both elections. The restore goes on.
func TestResumeWithNewerLocks(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	lead := func() {
		for _, prefix := range []string{layout.LockPrefix, layout.CompactorLockPrefix} {
			e, err := leader.New(src, prefix, nil)
			if err != nil {
				t.Fatal(err)
			}
			term, err := e.Campaign(t.Context())
			if err == nil {
				err = term.Resign(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
	}
	lead()
	ctx, kill := context.WithCancel(t.Context())
	slow := faultstore.New(back, nil)
	met := slow.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.DataPrefix) // it has copied all
	}, func(context.Context) { kill() })
	if _, err := backup.Restore(ctx, to, slow, quick); !met() || !errors.Is(err, context.Canceled) {
		t.Fatalf("%t, %v", met(), err)
	}
	lead()
	for range 2 { // the second call checks the log
		if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
			t.Fatal(err)
		}
	}
	whole(t, back, nil)
}

// TestHealedBesideARestore: a restore has listed a damaged object of the backup, and another backup heals that before the restore reads
// it. The restore does not call the backup damaged, and has what is sound.
func TestHealedBesideARestore(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	for key, body := range objects(t, to) {
		if layout.KindOf(key) == layout.KindSegment {
			fixture.Put(t, to, key, body[:len(body)/2])
		}
	}
	from := faultstore.New(to, nil)
	met := from.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.SegmentPrefix)
	}, func(context.Context) {
		if r, err := backup.Make(t.Context(), src, to, nil); err != nil || r.Healed == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	if _, err := backup.Restore(t.Context(), from, back, quick); !met() || err != nil {
		t.Errorf("%t, %v", met(), err)
	}
	whole(t, back, nil)
}

// TestRestoredLogIsUsed: who restores to a log that was restored before, and is in use, is not sent to another place: that would be a
// second live log of one identity.
func TestRestoredLogIsUsed(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	r, err := backup.Restore(t.Context(), to, back, quick)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{t: t, st: back, epoch: r.Epoch}
	l.lead()
	l.compact()
	_, err = backup.Restore(t.Context(), to, back, quick)
	if err == nil || !strings.Contains(err.Error(), "`fencepost verify` checks it. Restore to another place only if") || strings.Contains(err.Error(), "restore to an empty place") {
		t.Error(err)
	}
}

// short has only the first half of objects below a prefix, after they were written.
type short struct {
	store.Store
	prefix string
}

func (s short) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if strings.HasPrefix(key, s.prefix) {
		body = body[:len(body)/2]
	}
	return s.Store.Put(ctx, key, body, o)
}

// TestCutRestore: what a restore writes is cut, also when it is copied again. People are told what to do, and the same command goes on
// when the store is sound.
func TestCutRestore(t *testing.T) {
	for _, prefix := range []string{layout.SegmentPrefix, layout.FilePrefix} {
		src, to, back := newLog(t), named("backup"), named("back")
		begun(t, src)
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
		_, err := backup.Restore(t.Context(), to, short{back, prefix}, quick)
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "if the backup is sound, restore it to an empty place") {
			t.Errorf("%s: %v", prefix, err)
		}
		if r, err := backup.Restore(t.Context(), to, back, quick); err != nil || r.Healed == 0 {
			t.Errorf("%s: %+v, %v", prefix, r, err)
			continue
		}
		whole(t, back, nil)
	}
}

// TestCutBackup: a restore is interrupted, and then an object of the backup is cut. What the restore has copied before stays: it may be
// the last sound copy.
func TestCutBackup(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), to, rotting{back, layout.DataPrefix}, quick); err == nil {
		t.Fatal("the restore is not interrupted")
	}
	for key, body := range objects(t, to) {
		if layout.KindOf(key) == layout.KindSegment {
			fixture.Put(t, to, key, body[:len(body)/2])
		}
	}
	before := objects(t, back)
	if _, err := backup.Restore(t.Context(), to, back, quick); err == nil || !strings.Contains(err.Error(), "nothing was copied; restore to an empty place") {
		t.Error(err)
	}
	for key, body := range objects(t, back) {
		if !bytes.Equal(body, before[key]) {
			t.Errorf("%s was replaced", key)
		}
	}
}
