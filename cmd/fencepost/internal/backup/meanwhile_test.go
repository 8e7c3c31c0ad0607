package backup_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// TestOtherRestoreMeanwhile: a restore hangs. The backup is brought up to date, another machine restores it to the same place, and the
// log there is in use. The first restore wakes, and fails; it says that there is a log, and not that anything may be deleted.
func TestOtherRestoreMeanwhile(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	l := begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	from := faultstore.New(to, nil)
	met := from.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.ManifestPrefix)
	}, func(context.Context) {
		l.lead()
		l.compact()
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Error(err)
		}
		wipe(t, back) // as the first one says
		if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
			t.Error(err)
		}
	})
	_, err := backup.Restore(t.Context(), from, back, quick)
	if !met() || err == nil || !strings.Contains(err.Error(), "was brought up to date meanwhile") || !strings.Contains(err.Error(), "There is a log in mem://back now") || strings.Contains(err.Error(), "delete it") || strings.Contains(err.Error(), "be deleted") {
		t.Errorf("%t, %v", met(), err)
	}
}

// wipe deletes all that a store has.
func wipe(t *testing.T, st store.Store) {
	t.Helper()
	for key := range objects(t, st) {
		if err := st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTwoRestoresAtOnce: two restores go to one place. The later one does not depose the leader of the log that the first one has
// made, whenever that was; it says that there is a log.
func TestTwoRestoresAtOnce(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src)
	old, err := leader.New(src, layout.LockPrefix, &leader.Options{Identity: "original"})
	if err != nil {
		t.Fatal(err)
	}
	term, err := old.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	looked := ""
	for name, at := range map[string]func(read bool, op faultstore.Op) bool{
		"before it campaigns": func(read bool, op faultstore.Op) bool {
			locks := strings.HasPrefix(op.Key, layout.LockPrefix)
			switch {
			case looked == layout.FormatKey && locks:
				return true
			case read && locks, looked != "" && op.Key == layout.FormatKey:
				looked = op.Key // the lock, and then whether the place is still this restore's
			}
			return false
		},
		"before the epoch is raised": func(read bool, op faultstore.Op) bool { return read && strings.HasPrefix(op.Key, layout.LockPrefix) },
		"before it becomes a log": func(read bool, op faultstore.Op) bool {
			return read && op.Kind == faultstore.Put && op.Key == layout.FormatKey
		},
		"before it is claimed": func(_ bool, op faultstore.Op) bool { return op.Kind == faultstore.Put && op.Key == layout.FormatKey },
	} {
		back, read := named("back"), false
		slow := faultstore.New(back, nil)
		var next *leader.Term
		met := slow.BeforeFirst(func(op faultstore.Op) bool {
			read = read || op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.DataPrefix)
			return at(read, op)
		}, func(ctx context.Context) {
			if _, err := backup.Restore(ctx, to, back, quick); err != nil {
				t.Error(err)
				return
			}
			e, err := leader.New(back, layout.LockPrefix, &leader.Options{Identity: "next"})
			if err == nil {
				next, err = e.Campaign(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
		_, err := backup.Restore(t.Context(), to, slow, quick)
		if !met() || err == nil || !strings.Contains(err.Error(), "There is a log in mem://back now") || !strings.Contains(err.Error(), "leave it as it is. `fencepost verify` checks it") {
			t.Errorf("%s: %t, %v", name, met(), err)
		}
		if e, err := leader.New(back, layout.LockPrefix, nil); err != nil {
			t.Error(err)
		} else if rec, err := e.Leader(t.Context()); err != nil || rec.Holder != "next" || rec.Reason != "" {
			t.Errorf("%s: the leader was deposed: %+v, %v", name, rec, err)
		}
		if err := next.Resign(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// guard:restore-locks. Without this check: exec runs a command in an empty place, where its lock is all that there is; a backup is restored
// to there, which takes the lock for its own and goes on; a writer of the restored log leads beside the command.
// Also if the lock comes after the look, the restore deposes nobody.
func TestRestoreWhereSomebodyLeads(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{false, true} {
		back := named("back")
		e, err := leader.New(back, layout.LockPrefix, &leader.Options{Identity: "exec"})
		if err != nil {
			t.Fatal(err)
		}
		slow := faultstore.New(back, nil)
		met, says := func() bool { return true }, "it has lock/"
		var term *leader.Term
		if !late {
			term, err = e.Campaign(t.Context())
		} else {
			met, says = slow.BeforeFirst(func(op faultstore.Op) bool { return op.Kind == faultstore.Put }, func(ctx context.Context) {
				term, err = e.Campaign(context.WithoutCancel(ctx))
			}), "exec leads in mem://back"
		}
		if _, rerr := backup.Restore(t.Context(), to, slow, quick); rerr == nil || !strings.Contains(rerr.Error(), says) || !met() || err != nil {
			t.Fatalf("late %t: %v, %v", late, rerr, err)
		}
		if rec, err := e.Leader(t.Context()); err != nil || rec.Holder != "exec" || term.Check(0) != nil {
			t.Errorf("late %t: the leader was deposed: %+v, %v", late, rec, err)
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Errorf("late %t: %v", late, err)
		}
	}
}

// TestUpdateWithANewerLock: a backup of the same version, with a newer lock, is completed during a restore. The restore goes on, with epochs
// after that lock.
func TestUpdateWithANewerLock(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	lead := func() {
		e, err := leader.New(src, layout.LockPrefix, nil)
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err == nil {
			err = term.Resign(t.Context())
		}
		if err == nil {
			_, err = backup.Make(t.Context(), src, to, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lead()
	from := faultstore.New(to, nil)
	met := from.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.LockPrefix)
	}, func(context.Context) { lead() })
	r, err := backup.Restore(t.Context(), from, back, quick)
	if !met() || err != nil || r.Epoch < 2+backup.EpochGap {
		t.Errorf("%t, %+v, %v", met(), r, err)
	}
}

// aging is in a bucket that deletes objects by their age.
type aging struct{ store.Store }

func (aging) Expiries(context.Context, string) ([]store.Expiry, error) {
	return []store.Expiry{{Rule: "tidy", What: "deletes objects after 30 days"}}, nil
}

// TestRulesOfTheDestination: a place whose bucket deletes objects by their age is refused before anything is copied. Without a check it
// is only said. A log that was restored before such a rule is not damaged.
func TestRulesOfTheDestination(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, aging{to}, nil); err == nil || !strings.Contains(err.Error(), `rule "tidy" deletes objects`) || !strings.Contains(err.Error(), "nothing was copied; remove the rule") || len(objects(t, to)) > 0 {
		t.Errorf("backup: %v", err)
	}
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), to, aging{back}, quick); err == nil || !strings.Contains(err.Error(), "nothing was copied; remove the rule") || len(objects(t, back)) > 0 {
		t.Errorf("restore: %v", err)
	}
	said := ""
	if _, err := backup.Restore(t.Context(), to, aging{back}, &backup.Options{Probe: quickProbe, NoVerify: true, Note: func(f string, a ...any) { said += fmt.Sprintf(f, a...) }}); err != nil || !strings.Contains(said, "tidy") {
		t.Errorf("%v, %q", err, said)
	}
	if _, err := backup.Restore(t.Context(), to, aging{back}, quick); err == nil || errors.Is(err, fence.ErrCorrupt) || strings.Contains(err.Error(), "delete what") || !strings.Contains(err.Error(), "tidy") {
		t.Errorf("called again: %v", err)
	}
}

// TestRestoredLogIsDamaged: a log that was restored before is damaged. It may be in use, so nobody is told to delete it.
func TestRestoredLogIsDamaged(t *testing.T) {
	for _, prefix := range []string{layout.DataPrefix, layout.SegmentPrefix} {
		src, to, back := newLog(t), named("backup"), named("back")
		begun(t, src)
		if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
			t.Fatal(err)
		}
		_, err := backup.Restore(t.Context(), to, rotting{back, prefix}, quick)
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "It was restored before") || !strings.Contains(err.Error(), "restore again, to an empty place") || strings.Contains(err.Error(), "delete what is") {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

// TestCopyOfANewerVersion: in the place of a copy there is an object that a newer program has written. It is not taken for damage, and
// not replaced.
func TestCopyOfANewerVersion(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src).long('a')
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	for key, body := range objects(t, src) {
		if layout.KindOf(key) != layout.KindData || len(body) < 8<<10 {
			continue
		}
		newer := bytes.Clone(body)
		newer[4]++ // the version
		binary.LittleEndian.PutUint32(newer[frame.HeaderSize-4:], crc32.Checksum(newer[:frame.HeaderSize-4], crc32.MakeTable(crc32.Castagnoli)))
		if _, err := frame.DecodeHeader(newer); !errors.Is(err, fence.ErrFormat) {
			t.Fatal(err)
		}
		fixture.Put(t, to, key, newer)
		if _, err := backup.Make(t.Context(), src, to, nil); err == nil || !bytes.Equal(objects(t, to)[key], newer) {
			t.Errorf("%s was replaced: %v", key, err)
		}
	}
}
