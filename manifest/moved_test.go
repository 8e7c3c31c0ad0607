package manifest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// overwriting is a store that breaks the promise of a create.
type overwriting struct{ store.Store }

func (s overwriting) Put(ctx context.Context, key string, body []byte, _ *store.PutOptions) (store.Info, error) {
	return s.Store.Put(ctx, key, body, nil)
}

func moved(ctx context.Context, st, files store.Store) error {
	_, err := manifest.Init(ctx, st, &manifest.InitOptions{Files: files, FilesMoved: true})
	return err
}

// TestFilesMoved: a log whose files were moved gets a new mark, and a new home.
func TestFilesMoved(t *testing.T) {
	init := func(st, second store.Store) manifest.Format {
		f, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}, Files: second})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	st, third, own := memstore.New(nil), memstore.New(nil), memstore.New(nil)
	f := init(st, memstore.New(nil))
	init(own, nil)
	if err := errors.Join(moved(t.Context(), st, third), files.Check(t.Context(), third, f.Log, st.Traits().Name, nil)); err != nil {
		t.Error(err)
	}
	fixture.WantErr(t, moved(t.Context(), own, third), manifest.ErrFiles, "leave out")
	fixture.WantErr(t, moved(t.Context(), own, nil), manifest.ErrOptions, "FilesMoved needs Files")
	fixture.WantErr(t, moved(t.Context(), st, nil), manifest.ErrFiles, "open that one")
	fixture.WantErr(t, moved(t.Context(), memstore.New(nil), third), manifest.ErrNotInitialized, "")
	fixture.WantErr(t, moved(t.Context(), st, overwriting{memstore.New(nil)}), probe.ErrRefused, "")

	root, err := dirstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := func(prefix string) store.Store {
		st, err := store.Sub(root, prefix)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	init(at("log"), at("table"))
	fixture.WantErr(t, moved(t.Context(), at("log"), at("log/files")), manifest.ErrFiles, "lie one within the other")
}

// TestFilesMovedSleeps: the process that moves files sleeps in its probe, while the log is moved to
// another place with the same store for files. The later move wins.
func TestFilesMovedSleeps(t *testing.T) {
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	mem := func(name string) store.Store { return memstore.New(&memstore.Options{Name: "mem://" + name}) }
	one, two, third := mem("one"), mem("two"), mem("third")
	f, err := manifest.Init(t.Context(), one, &manifest.InitOptions{Probe: quick, Files: mem("second")})
	if err != nil {
		t.Fatal(err)
	}
	body, _, err := store.Read(t.Context(), one, layout.FormatKey, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, two, layout.FormatKey, body)
	for _, there := range []bool{false, true} {
		if there { // as an old mark, whose probe does not count
			if seen, err := files.See(t.Context(), third, f.Log, nil); err != nil || files.Replace(t.Context(), third, f.Log, store.Traits{Name: "mem://elsewhere"}, nil, seen, nil) != nil {
				t.Fatal(err)
			}
		}
		slow := faultstore.New(third, nil)
		met := slow.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.SharedDir+"/"+layout.TmpPrefix)
		}, func(ctx context.Context) {
			if err := moved(ctx, two, third); err != nil {
				t.Error(err)
			}
		})
		fixture.WantErr(t, moved(t.Context(), one, slow), manifest.ErrFiles, "was changed by somebody else meanwhile")
		if err := files.Check(t.Context(), third, f.Log, "mem://two", nil); err != nil || !met() {
			t.Error(met(), err)
		}
	}
}
