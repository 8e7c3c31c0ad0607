package doctor

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestNoGroup: objects of another program whose names are like those of a group do not hide a log.
func TestNoGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		fixture.Put(t, p, group.PartitionsPrefix+"eu.csv", []byte("of another program"))
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
		log, err := store.Sub(p, group.PartitionPrefix(0))
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

// TestLostAtFloor: compaction is stuck where an object is lost. That nothing waits there is wrong.
func TestLostAtFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		p.lead()
		s, err := survey.Take(t.Context(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		key := layout.DataKey(s.Floor)
		if err := p.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if f := of(examine(t, p, nil), "state"); len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].What, key) || !strings.Contains(f[0].Remedy, "fencepost verify") {
			t.Errorf("%+v", f)
		}
	})
}

// TestLocksInterrupted: a listing of the locks that begins again counts none twice.
func TestLocksInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{Store: memstore.New(nil), t: t}
		p.fill(manyLocks)
		begun := 0
		p.breaks = func(prefix string, n int) error {
			if n == 0 {
				begun++
			}
			if begun == 1 && n == 10 {
				return &store.Error{Op: "list", Key: prefix, Status: 503}
			}
			return nil
		}
		x := begin(p, nil)
		x.oldLocks(t.Context())
		if f := of(x.found, "growth"); begun != 2 || len(f) != 1 || f[0].Level != OK {
			t.Errorf("%d listings: %+v", begun, f)
		}
	})
}

// TestUploadsTriesAgain: one error of the store does not leave a check undone.
func TestUploadsTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := &patient{Store: memstore.New(nil), t: t, uploads: []store.Info{{Key: "file/x", LastModified: now.Add(-oldUpload - time.Hour), Date: now}}}
		asked := 0
		p.fault = func(op, key string) error {
			if asked++; asked == 1 {
				return &store.Error{Op: op, Key: key, Status: 503}
			}
			return nil
		}
		x := begin(p, nil)
		x.uploads(t.Context())
		if f := x.found; asked != 2 || len(f) != 1 || !strings.Contains(f[0].What, "paid for: 1") {
			t.Errorf("asked %d times: %+v", asked, f)
		}
	})
}

// TestLocksFail: while the locks cannot be listed nobody knows who leads. The examination ends, and says why.
func TestLocksFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		p.fault = func(op, key string) error {
			if op == "list" && key == layout.LockPrefix {
				return &store.Error{Op: op, Key: key, Status: 503}
			}
			return nil
		}
		start := time.Now()
		found := examine(t, p, nil)
		if took := time.Since(start); took > 10*time.Minute {
			t.Errorf("it took %v", took)
		}
		for _, check := range []string{"state", "leader"} {
			if f := of(found, check); len(f) != 1 || f[0].Level != Warning || !strings.Contains(f[0].What, "not checked: ") || !strings.Contains(f[0].What, "503") {
				t.Errorf("%+v", f)
			}
		}
	})
}

// TestLogBesideGroup: a log beside a group that has lost its format.json is found, and one whose format.json is
// corrupt does not hide the group.
func TestLogBesideGroup(t *testing.T) {
	for name, harm := range map[string]func(p *patient) error{
		"lost":    func(p *patient) error { return p.Delete(p.t.Context(), layout.FormatKey) },
		"corrupt": func(p *patient) error { fixture.Put(p.t, p, layout.FormatKey, []byte("{")); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, logtest.WithGrace(10*time.Minute))
				if err := group.Create(t.Context(), p, &group.Options{Partitions: 2, Probe: quickProbe}); err != nil {
					t.Fatal(err)
				}
				if err := harm(p); err != nil {
					t.Fatal(err)
				}
				found := examine(t, p, nil)
				if f := of(found, "format"); len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].Remedy, "fencepost restore") {
					t.Errorf("%+v", f)
				}
				if len(of(found, "members")) != 1 {
					t.Errorf("nothing is said of the group: %+v", found)
				}
			})
		})
	}
}
