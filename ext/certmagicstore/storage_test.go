package certmagicstore_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/certmagicstore"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func storage(t *testing.T, st store.Store) *certmagicstore.Storage {
	t.Helper()
	locks, err := lock.New(st, "locks", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	s, err := certmagicstore.New(st, "certmagic", locks)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAsFileStorage does the same to this storage and to certmagic's own, and wants the same answers.
func TestAsFileStorage(t *testing.T) {
	ctx := t.Context()
	for name, s := range map[string]certmagic.Storage{
		"FileStorage": &certmagic.FileStorage{Path: t.TempDir()}, "certmagicstore": storage(t, memstore.New(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			const key = "acme/ca.example-directory/sites/example.com/example.com.json"
			if _, err := s.Load(ctx, key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Load of nothing: %v", err)
			}
			if _, err := s.Stat(ctx, key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Stat of nothing: %v", err)
			}
			if _, err := s.List(ctx, "acme", true); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("List of nothing: %v", err)
			}
			if err := s.Delete(ctx, key); err != nil {
				t.Errorf("Delete of nothing: %v", err)
			}
			for _, value := range []string{"", "one", "another"} {
				if err := s.Store(ctx, key, []byte(value)); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Load(ctx, key); err != nil || string(got) != value {
					t.Errorf("Load: %q, %v", got, err)
				}
				if info, err := s.Stat(ctx, key); err != nil || info.Key != key || info.Size != int64(len(value)) || !info.IsTerminal || info.Modified.IsZero() {
					t.Errorf("Stat: %+v, %v", info, err)
				}
			}
			if err := s.Store(ctx, "acme/ca.example-directory/users/me/me.key", nil); err != nil {
				t.Fatal(err)
			}
			for dir, want := range map[string][]string{
				"acme": {"acme/ca.example-directory"}, "acme/ca.example-directory": {"acme/ca.example-directory/sites", "acme/ca.example-directory/users"},
			} {
				got, err := s.List(ctx, dir, false)
				slices.Sort(got)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("List of %s: %q, %v", dir, got, err)
				}
			}
			if all, err := s.List(ctx, "acme", true); err != nil || !slices.Contains(all, key) {
				t.Errorf("List of all: %q, %v", all, err)
			}
			if info, err := s.Stat(ctx, "acme"); err != nil || info.IsTerminal {
				t.Errorf("Stat of a directory: %+v, %v", info, err)
			}
			if err := s.Delete(ctx, "acme/ca.example-directory/sites"); err != nil {
				t.Fatal(err)
			}
			if s.Exists(ctx, key) || !s.Exists(ctx, "acme/ca.example-directory/users") {
				t.Error("a directory was deleted, and what is there is something else")
			}
			if err := s.Lock(ctx, "x"); err != nil {
				t.Fatal(err)
			}
			soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if err := s.Lock(soon, "x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock of what is held: %v", err)
			}
			if err := s.Unlock(ctx, "x"); err != nil {
				t.Error(err)
			}
			if err := s.Lock(ctx, "x"); err != nil {
				t.Error(err)
			}
			if err := s.Unlock(ctx, "x"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExistsIfUnsure: a store that does not answer does not say that a certificate is missing. Otherwise certmagic obtains
// another one, each time that it looks.
func TestExistsIfUnsure(t *testing.T) {
	faulty := faultstore.New(memstore.New(nil), &faultstore.Options{Hook: faultstore.Script(faultstore.Rule{
		Kind: faultstore.Get, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied},
	})})
	if !storage(t, faulty).Exists(t.Context(), "a") {
		t.Error("a store that refuses to tell says that the key does not exist")
	}
}

// TestUnlockOne: a holder whose lock was lost unlocks that one, and not the lock that another goroutine has got since.
func TestUnlockOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := faultstore.New(memstore.New(&memstore.Options{Clock: clock.Go()}), &faultstore.Options{Clock: clock.Go()})
		locks, err := lock.New(faulty, "locks", &lock.Options{Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(context.Background())
		s, err := certmagicstore.New(faulty, "certmagic", locks)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Lock(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		faulty.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}}))
		time.Sleep(time.Minute)
		faulty.SetHook(nil)
		if err := s.Lock(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if err := s.Unlock(t.Context(), "x"); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock of the first, which was lost: %v", err)
		}
		if ok, err := s.TryLock(t.Context(), "x"); ok || err != nil {
			t.Errorf("a third one holds what the second one holds: %v", err)
		}
		if err := s.Unlock(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}

// The Lock of certmagic-s3 was empty (its issue 12): two machines held it.
func TestTwoMachines(t *testing.T) {
	st := memstore.New(nil)
	a, b := storage(t, st), storage(t, st)
	if err := a.Lock(t.Context(), "example.com"); err != nil {
		t.Fatal(err)
	}
	if ok, err := b.TryLock(t.Context(), "example.com"); ok || err != nil {
		t.Errorf("b holds what a holds: %v", err)
	}
	if err := b.Unlock(t.Context(), "example.com"); err == nil {
		t.Error("b unlocks what a holds")
	}
	if err := a.Unlock(t.Context(), "example.com"); err != nil {
		t.Error(err)
	}
	if ok, err := b.TryLock(t.Context(), "example.com"); !ok || err != nil {
		t.Errorf("b cannot lock what is free: %v", err)
	}
}
