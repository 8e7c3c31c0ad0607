package manifest

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// TestClaimFiles: of the copies of a log in several places one gets a store for files, and keeps it. Without options nothing is
// written.
func TestClaimFiles(t *testing.T) {
	ctx, log := t.Context(), testFormat().Log
	at := func(name string) store.Store { return memstore.New(&memstore.Options{Name: "mem://" + name}) }
	one, two, second := at("one"), at("two"), at("lake")
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	for _, st := range []store.Store{nil, one} {
		_, _, err := ClaimFiles(ctx, st, second, log, nil)
		fixture.WantErr(t, err, ErrFiles, "is not the one that has the files")
	}
	if _, _, err := ClaimFiles(ctx, at("lake/log"), second, log, quick); !errors.Is(err, ErrFiles) {
		t.Errorf("a log below its files: %v", err)
	}
	for info, err := range second.List(ctx, "", nil) {
		t.Errorf("it has written %s, %v", info.Key, err)
	}
	f, mark, err := ClaimFiles(ctx, one, second, log, quick)
	if err != nil || f.Store != "mem://lake" || f.Probe == nil || mark.Version == "" {
		t.Fatalf("%+v, %+v, %v", f, mark, err)
	}
	for _, opts := range []*probe.Options{nil, quick} {
		if _, again, err := ClaimFiles(ctx, one, second, log, opts); err != nil || again.Version != mark.Version {
			t.Errorf("%+v, want %+v, %v", again, mark, err)
		}
		_, _, err := ClaimFiles(ctx, two, second, log, opts)
		fixture.WantErr(t, err, ErrFiles, "has those of the same log in mem://one")
	}
	if _, again, err := ClaimFiles(ctx, nil, second, log, nil); err != nil || again.Version != mark.Version {
		t.Errorf("any place: %+v, want %+v, %v", again, mark, err)
	}
}
