package backup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// guard:backup-read-only. A program that would write to a backup is refused before it writes. Readers work. A later backup to there
// succeeds, and what is restored is a log to work with.
func TestBackupIsReadOnly(t *testing.T) {
	src, to := newLog(t), named("backup")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	before := contents(t, to)
	f := faultstore.New(to, nil)
	ctx := t.Context()
	r, err := reader.Open(ctx, f, nil)
	if err != nil {
		t.Fatal(err)
	}
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
		"Truncate":    c.Truncate(ctx, 1),
		"Pin":         second(r.Pin(ctx, "mine", 0, 0)),
		"Consumer":    second(r.TakeConsumer(ctx, "billing")),
		"Repair":      second(verify.Run(ctx, f, &verify.Options{Repair: true})),
		"backup of":   second(backup.Make(ctx, f, named("another"), nil)),
	} {
		if !errors.Is(err, manifest.ErrBackup) || !strings.Contains(err.Error(), "fencepost ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = backup.Restore(ctx, src, f, quick)
	if err == nil {
		t.Error("a restore to a backup")
	}
	if s, err := r.Snapshot(ctx, nil); err != nil {
		t.Error(err)
	} else if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	whole(t, f, &verify.Options{Copy: true})
	if n := f.Counts().Of(faultstore.Put, "") + f.Counts().Of(faultstore.Upload, "") + f.Counts().Of(faultstore.Delete, ""); n != 0 {
		t.Errorf("%d writes", n)
	}
	if after := contents(t, to); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Error("the backup has changed")
	}
	if _, err := backup.Make(ctx, src, to, nil); err != nil {
		t.Error(err)
	}
	back := named("back")
	if _, err := backup.Restore(ctx, to, back, quick); err != nil {
		t.Fatal(err)
	}
	if got, err := manifest.ReadFormat(ctx, back, nil); err != nil || got.Backup || len(got.Requires) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := appendTo(ctx, back); err != nil {
		t.Error(err)
	}
}

// guard:backup-marked. A log that is made in the place of a backup, before any of its requests there, is left as it is; and
// after the first one none can be made there.
func TestInitBesideBackup(t *testing.T) {
	src := newLog(t)
	begun(t, src)
	for n := 1; ; n++ {
		to := named("backup")
		f := faultstore.New(to, nil)
		var ierr error
		met := f.BeforeFirst(func(op faultstore.Op) bool { return op.N == n }, func(ctx context.Context) {
			if _, ierr = manifest.Init(ctx, to, &manifest.InitOptions{Probe: quickProbe}); ierr == nil {
				ierr = appendTo(ctx, to)
			}
		})
		_, err := backup.Make(t.Context(), src, f, nil)
		if !met() {
			if n < 10 || err != nil {
				t.Errorf("%d requests: %v", n, err)
			}
			return
		}
		switch {
		case ierr == nil && err != nil: // the log was there first
			whole(t, to, nil)
			if err := appendTo(t.Context(), to); err != nil {
				t.Errorf("before request %d: the log is dead: %v", n, err)
			}
		case errors.Is(ierr, manifest.ErrBackup) && err == nil:
		default:
			t.Errorf("before request %d: init: %v; backup: %v", n, ierr, err)
		}
		if n > 25 { // the rest is alike
			return
		}
	}
}

func appendTo(ctx context.Context, st store.Store) error {
	return fencepost.Run(ctx, st, nil, func(ctx context.Context, s *fencepost.Session) error {
		_, err := s.Append(ctx, [][]byte{[]byte("x")})
		return err
	})
}

// guard:restore-own. What is in a backup and not of its kinds is not restored, and people are told.
func TestRestoreLeavesOut(t *testing.T) {
	src, to, back := newLog(t), named("backup"), named("back")
	begun(t, src)
	if _, err := backup.Make(t.Context(), src, to, nil); err != nil {
		t.Fatal(err)
	}
	strange := []string{
		"junk/evil.sh", "pin-not", "pin/00000000-0000-4000-8000-000000000001.json", "consumer/billing.json", "file/_delta_log/00000000000000000000.json", "data/x", "lock/candidate.json", "group/group.json", "manifest",
	}
	for _, key := range strange {
		fixture.Put(t, to, key, []byte("strange"))
	}
	said := ""
	r, err := backup.Restore(t.Context(), to, back, &backup.Options{Probe: quickProbe, Note: func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" }})
	if err != nil || r.Strange != len(strange) {
		t.Fatalf("%+v, %v", r, err)
	}
	if !strings.Contains(said, "left out") || !strings.Contains(said, `"consumer/billing.json"`) || !strings.Contains(said, "and 6 more") {
		t.Error(said)
	}
	for info, err := range store.ListAll(t.Context(), back, "", nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		key := info.Key
		if kind := layout.KindOf(key); kind == layout.KindUnknown || kind == layout.KindPin || kind == layout.KindConsumer {
			t.Errorf("%s was restored", key)
		}
	}
	whole(t, back, nil)
}
