package backup_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// onlyMark fails the test unless a restore that was refused has left its mark and nothing else.
func onlyMark(t *testing.T, st store.Store) {
	t.Helper()
	for key := range objects(t, st) {
		if key != layout.FormatKey {
			t.Errorf("a restore that was refused has written %s", key)
		}
	}
	if _, err := manifest.ReadFormat(t.Context(), st, nil); !errors.Is(err, manifest.ErrRestoring) {
		t.Error(err)
	}
}

// guard:restore-claimed, guard:restore-first. A log that is made in the place of a restore, before any of its requests
// there, is left as it is, with the record that was acknowledged. After the first one none can be made there.
func TestLogBesideARestore(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	want := strings.Join(contents(t, src), "\n")
	for n, last := 1, false; !last; n++ {
		back := named("back")
		f := faultstore.New(back, nil)
		var aerr error
		met := f.BeforeFirst(func(op faultstore.Op) bool { return op.N == n }, func(ctx context.Context) { aerr = appendTo(ctx, back) })
		_, err := backup.Restore(t.Context(), to, f, quick)
		last = !met()
		got := strings.Join(contents(t, back), "\n")
		switch {
		case last && n > 20 && err == nil:
		case aerr == nil && err != nil && got == "x": // the log was there first
		case errors.Is(aerr, manifest.ErrRestoring) && err == nil && got == want:
		case aerr == nil && err == nil && got == want+"\nx": // after the last write
		default:
			t.Errorf("before request %d: append: %v; restore: %v; %q", n, aerr, err, got)
		}
		if err := appendTo(t.Context(), back); err != nil {
			t.Errorf("before request %d: the log is dead: %v", n, err)
		}
	}
}

// guard:restore-claimed. Nobody writes or reads where a restore was interrupted, and each is told what to do. The same restore goes on, and
// a restore of another backup is refused.
func TestInterruptedRestore(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	l := begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), to, rotting{back, layout.SegmentPrefix}, quick); err == nil {
		t.Fatal("the restore is not interrupted")
	}
	ctx, f := t.Context(), faultstore.New(back, nil)
	c, err := compactor.New(f, &compactor.Options{Token: fence.NewToken(99)})
	if err != nil {
		t.Fatal(err)
	}
	elected, err := compactor.New(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"Run":         fencepost.Run(ctx, f, nil, func(context.Context, *fencepost.Session) error { return nil }),
		"writer.Open": second(writer.Open(ctx, f, fence.NewToken(99), nil)),
		"Init":        second(manifest.Init(ctx, f, nil)),
		"Once":        second(c.Once(ctx)),
		"elected":     second(elected.Once(ctx)),
		"reader.Open": second(reader.Open(ctx, f, nil)),
		"verify":      second(verify.Run(ctx, f, &verify.Options{Repair: true})),
		"backup of":   second(backup.Make(ctx, f, named("another"), nil)),
		"backup to":   second(backup.Make(ctx, src, f, nil)),
	} {
		if err == nil || !errors.Is(err, manifest.ErrRestoring) && name != "backup to" || name != "backup to" && !strings.Contains(err.Error(), "fencepost restore") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := f.Counts().Of(faultstore.Put, "") + f.Counts().Of(faultstore.Upload, "") + f.Counts().Of(faultstore.Delete, ""); n != 0 {
		t.Errorf("%d writes", n)
	}
	l.lead()
	l.compact()
	newer := named("newer")
	if _, err := backup.Make(t.Context(), src, newer, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(ctx, newer, back, quick); err == nil || !strings.Contains(err.Error(), "has begun and has not ended") {
		t.Error(err)
	}
	if _, err := backup.Restore(ctx, to, back, quick); err != nil {
		t.Fatal(err)
	}
	if err := appendTo(ctx, back); err != nil {
		t.Error(err)
	}
}

// guard:restore-swap. A restore hangs before it makes its place a log. The place is emptied, and another backup is being restored
// to there. The first one wakes, and makes no log of it.
func TestRestoreWakesBesideAnother(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	f, puts := faultstore.New(back, nil), 0
	met := f.BeforeFirst(func(op faultstore.Op) bool {
		if op.Kind == faultstore.Put && op.Key == layout.FormatKey {
			puts++
		}
		return puts == 2
	}, func(ctx context.Context) {
		wipe(t, back)
		if _, err := backup.Restore(ctx, to, rotting{back, layout.SegmentPrefix}, quick); err == nil {
			t.Error("the second restore is not interrupted")
		}
	})
	_, err := backup.Restore(t.Context(), to, f, quick)
	if !met() || err == nil || !strings.Contains(err.Error(), "Another restore to mem://back has begun meanwhile") {
		t.Errorf("%t, %v", met(), err)
	}
	if _, err := manifest.ReadFormat(t.Context(), back, nil); !errors.Is(err, manifest.ErrRestoring) {
		t.Error(err)
	}
	if _, err := backup.Restore(t.Context(), to, back, quick); err != nil {
		t.Error(err)
	}
}

// An answer to either write of format.json is lost, and the write was applied or not. The restore is told which, or the same command goes on.
func TestRestoreWithLostAnswers(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the answer is lost")
	for _, nth := range []int{1, 2} {
		for _, applied := range []bool{false, true} {
			back, puts := named("back"), 0
			f := faultstore.New(back, &faultstore.Options{Hook: func(op faultstore.Op) faultstore.Fault {
				if op.Kind != faultstore.Put || op.Key != layout.FormatKey {
					return faultstore.Fault{}
				}
				if puts++; puts != nth {
					return faultstore.Fault{}
				}
				return faultstore.Fault{Drop: !applied, Err: lost}
			}})
			if _, err := backup.Restore(t.Context(), to, f, quick); err != nil {
				t.Errorf("write %d, applied %t: %v", nth, applied, err)
			}
			if err := appendTo(t.Context(), back); err != nil {
				t.Errorf("write %d, applied %t: %v", nth, applied, err)
			}
		}
	}
}
