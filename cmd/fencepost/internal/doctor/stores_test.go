package doctor

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestNoGroup: objects of another program whose names are like those of a group do not hide a log.
func TestNoGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		fixture.Put(t, p, layout.PartitionsPrefix+"eu.csv", []byte("of another program"))
		found := examine(t, p, &Options{Deep: true, Probe: quickProbe})
		wants(t, found, "group", Warning, "If another log or program has such names, leave them")
		if f := of(found, "content"); len(f) != 1 || !strings.Contains(f[0].What, "bytes were read") {
			t.Errorf("the log was not read: %+v", f)
		}
	})
}

// TestNeedlessFiles: the logs of a group keep their files themselves. A store after --files keeps nobody from reading
// them.
func TestNeedlessFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{Store: memstore.New(nil), t: t}
		if err := group.Create(t.Context(), p, &group.Options{Partitions: 1, Probe: quickProbe}); err != nil {
			t.Fatal(err)
		}
		log, err := store.Sub(p, layout.PartitionPrefix(0))
		if err == nil {
			_, err = manifest.Init(t.Context(), log, &manifest.InitOptions{Probe: quickProbe, Grace: time.Minute})
		}
		if err != nil {
			t.Fatal(err)
		}
		found := of(examine(t, p, &Options{Deep: true, Probe: quickProbe, Files: memstore.New(nil)}), "content")
		if len(found) != 1 || found[0].Level != OK || !strings.Contains(found[0].What, "bytes were read") {
			t.Errorf("%+v", found)
		}
	})
}

// TestUselessFiles: a store after --files that is wrong, or does not answer, is not looked into for files.
// Nobody is told to give --files again.
func TestUselessFiles(t *testing.T) {
	for name, fault := range map[string]error{"wrong": nil, "away": &store.Error{Op: "get", Status: 503}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, files := apart(t)
				p.pin(holdPrefix + "x")
				time.Sleep(oldPin + time.Hour)
				p.lead()
				p.foldWith(&compactor.Options{Token: fence.NewToken(1), Files: files})
				second := &patient{Store: memstore.New(nil), t: t}
				if fault != nil {
					second.Store, second.fault = files, func(string, string) error { return fault }
				}
				found := examine(t, p, &Options{Deep: true, Probe: quickProbe, Files: second})
				for _, check := range []string{"content", "published table", "lifecycle rules of the store for files", "pins"} {
					if f := of(found, check); len(f) != 1 || f[0].Level != Warning || !strings.Contains(f[0].Remedy, "first see what is said of the ") {
						t.Errorf("%s: %+v", check, f)
					}
				}
			})
		})
	}
}
