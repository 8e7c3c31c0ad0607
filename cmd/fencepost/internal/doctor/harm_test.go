package doctor

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

var quickProbe = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}

// of returns the findings of a check.
func of(found []Finding, check string) (some []Finding) {
	for _, f := range found {
		if f.Check == check {
			some = append(some, f)
		}
	}
	return some
}

// inHealth fails unless all findings are OK, but for those of some checks.
func inHealth(t *testing.T, found []Finding, but ...string) {
	t.Helper()
	for _, f := range found {
		if bad(f) && !strings.Contains(strings.Join(but, ","), f.Check) {
			t.Errorf("%+v", f)
		}
	}
}

// TestNeighbours: the objects of a group at the place of a log are live. Nobody is told to move them.
func TestNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		if err := group.Create(t.Context(), p, &group.Options{Partitions: 2, Probe: quickProbe}); err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, p, group.PartitionPrefix(0)+"/format.json", []byte("of the log of a partition"))
		compactors, err := store.Sub(p, group.CompactorsPrefix)
		if err == nil {
			err = group.Create(t.Context(), compactors, &group.Options{Partitions: 2, Probe: quickProbe})
		}
		if err != nil {
			t.Fatal(err)
		}
		found := examine(t, p, nil)
		inHealth(t, found, "members", "partitions", "compactors") // nobody works
		if len(of(found, "growth")) != 1 || len(of(found, "members")) != 1 {
			t.Errorf("%+v", found)
		}
		if f := of(examine(t, p, &Options{Files: memstore.New(nil)}), "store for files"); len(f) > 0 {
			t.Errorf("the logs of the partitions may have that store: %+v", f)
		}
		fixture.Put(t, p, "orders/eu/format.json", []byte("of another log"))
		found = of(examine(t, p, nil), "growth")
		if len(found) != 1 || found[0].Level != Warning || !strings.Contains(found[0].What, "1") || !strings.Contains(found[0].Remedy, "Leave those of another log") {
			t.Errorf("%+v", found)
		}
	})
}

// TestLockOfCompactors: a lock of the compactors that cannot be read is not taken for one of the leaders,
// whose step-down would depose a sound leader. The other checks are made.
func TestLockOfCompactors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		fixture.Put(t, p, layout.LockKey(layout.CompactorLockPrefix, 7), []byte("{"))
		found := examine(t, p, nil)
		wants(t, found, "compactor", Problem, "step-down --force --compactor --validity D URL")
		for _, check := range []string{"leader", "compaction", "pins", "growth"} {
			if len(of(found, check)) != 1 {
				t.Errorf("%s was not checked: %+v", check, found)
			}
		}
	})
}

// TestProbeFails: only a store that breaks a promise is called one that loses records.
func TestProbeFails(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		level Level
		says  string
	}{
		"no rights":   {&store.Error{Op: "put", Kind: store.ErrDenied, Status: 403}, Warning, "below tmp/"},
		"overload":    {&store.Error{Op: "put", Status: 503}, Warning, "run doctor again"},
		"no promises": {nil, Problem, "use another store"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, logtest.WithGrace(10*time.Minute))
				var st store.Store = liar{p}
				if c.err != nil {
					st = p
					p.fault = func(op, key string) error {
						if op == "put" && strings.HasPrefix(key, layout.TmpPrefix) {
							return c.err
						}
						return nil
					}
				}
				found := examine(t, st, &Options{Deep: true, Probe: quickProbe})
				wants(t, found, "store", c.level, c.says)
				if f := of(found, "store"); c.level == Warning && strings.Contains(f[0].Remedy, "another store") {
					t.Errorf("%+v", f)
				}
			})
		})
	}
}

// liar ignores conditions.
type liar struct{ store.Store }

func (l liar) Put(ctx context.Context, key string, body []byte, _ *store.PutOptions) (store.Info, error) {
	return l.Store.Put(ctx, key, body, nil)
}

// pin pins the newest version.
func (p *patient) pin(name string) {
	p.t.Helper()
	r, err := reader.Open(p.t.Context(), p, nil)
	if err == nil {
		_, err = r.Pin(p.t.Context(), name, 0, 0)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestYoungerPin: unpin removes all pins of a name. If one of them is young, as that of a backup that
// runs again, nobody is told to do that.
func TestYoungerPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		p.pin("backup")
		time.Sleep(oldPin + time.Hour)
		p.pin("backup")
		found := examine(t, p, nil)
		wants(t, found, "pins", Warning, "there is a younger pin of that name")
		if f := of(found, "pins"); strings.Contains(f[0].Remedy, "fencepost unpin") {
			t.Errorf("%+v", f)
		}
		time.Sleep(oldPin + time.Hour) // both are forgotten
		wants(t, examine(t, p, nil), "pins", Warning, "`fencepost unpin 'backup' URL`")
	})
}

// TestUnpin: who may pin chooses the name, and a shell reads the command.
func TestUnpin(t *testing.T) {
	for name, want := range map[string]string{
		"a b":          `'a b'`,
		"it's; rm -rf": `'it'\''s; rm -rf'`,
		`"a\b"`:        `'"a\b"'`,
		"--help":       `-- '--help'`,
		"a'\x1b[2J\nb": `$'a\'\x1b[2J\nb'`,
	} {
		if got := unpin(name); got != "`fencepost unpin "+want+" URL`" {
			t.Errorf("%q: %s", name, got)
		}
	}
}

// TestHoldIdle: a pin of the newest version keeps nothing that could be deleted. A table elsewhere may
// need it.
func TestHoldIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishedLog(t)
		p.deleteBelow(layout.DeltaPrefix)
		time.Sleep(oldPin + time.Hour)
		inHealth(t, examine(t, p, nil))
	})
}

// apart makes a log whose files are in a second store.
func apart(t *testing.T) (p *patient, files store.Store) {
	t.Helper()
	files = memstore.New(nil)
	p = &patient{Store: memstore.New(nil), t: t, files: files}
	if _, err := manifest.Init(t.Context(), p, &manifest.InitOptions{Files: files, Probe: quickProbe, Grace: time.Minute}); err != nil {
		t.Fatal(err)
	}
	p.lead()
	return p, files
}

// TestWrongFiles: where the mark of the log is missing, there is no table. That does not mean that it
// was deleted.
func TestWrongFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, files := apart(t)
		p.pin(holdPrefix + "x")
		time.Sleep(oldPin + time.Hour)
		p.lead()
		p.foldWith(&compactor.Options{Token: fence.NewToken(1), Files: files})
		found := examine(t, p, &Options{Files: memstore.New(nil)})
		if f := of(found, "store for files"); len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].Remedy, "first check the URL") {
			t.Errorf("%+v", f)
		}
		for _, f := range found {
			if strings.Contains(f.Remedy, "unpin") {
				t.Errorf("%+v", f)
			}
		}
		if f := of(examine(t, p, &Options{Files: files}), "store for files"); len(f) != 1 || f[0].Level != OK {
			t.Errorf("the right store: %+v", f)
		}
		one := admit(t, logtest.WithGrace(time.Minute))
		wants(t, examine(t, one, &Options{Files: files}), "store for files", Warning, "leave out --files")
	})
}

// TestRulesOfFiles: a rule of the second store deletes files of the table.
func TestRulesOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, files := apart(t)
		const check = "lifecycle rules of the store for files"
		if f := of(examine(t, p, nil), check); len(f) != 1 || f[0].Level != Warning || !strings.Contains(f[0].What, "not checked") {
			t.Errorf("without --files: %+v", f)
		}
		if f := of(examine(t, p, &Options{Deep: true, Probe: quickProbe}), "content"); len(f) != 1 || f[0].Level != Warning || !strings.Contains(f[0].Remedy, "--files") {
			t.Errorf("without --files: %+v", f)
		}
		second := &patient{Store: files, t: t}
		inHealth(t, examine(t, p, &Options{Files: second}))
		second.rules = []store.Expiry{{Rule: "tidy", What: "deletes objects after 30 days"}}
		wants(t, examine(t, p, &Options{Files: second}), check, Problem, "limit the rule to other prefixes")
	})
}

// TestWrongNumber: a lock whose number is far above the one before is no work of an election.
func TestWrongNumber(t *testing.T) {
	for name, c := range map[string]struct {
		epoch fence.Epoch
		next  bool
		says  string
	}{
		"far above":         {1 << 40, false, "which does not name the newest"},
		"named as the next": {1 << 40, true, ""},
		"the last":          {fence.MaxEpoch, false, "0 epochs are left"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, logtest.WithGrace(10*time.Minute))
				o := &leader.Options{}
				if c.next {
					o.MinEpoch = c.epoch
				}
				p.leadWith(o)
				if !c.next {
					p.leap(c.epoch)
				}
				n := 0
				for _, f := range examine(t, p, nil) {
					if bad(f) && !strings.Contains(f.Remedy, "stop all candidates") {
						t.Errorf("%+v", f)
					}
					if c.says != "" && strings.Contains(f.What, c.says) && f.Level == Problem {
						n++
					}
				}
				if want := min(len(c.says), 1); n != want {
					t.Errorf("%d findings that say %q", n, c.says)
				}
			})
		})
	}
}

func (p *patient) leadWith(o *leader.Options) {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, o)
	if err == nil {
		err = e.Run(p.t.Context(), func(context.Context, *leader.Term) error { return nil })
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// leap puts an expired lock under a high number, as a faulty program would.
func (p *patient) leap(epoch fence.Epoch) {
	p.t.Helper()
	p.edit(layout.LockKey(layout.LockPrefix, 1), layout.LockKey(layout.LockPrefix, epoch), func(doc map[string]any) { doc["epoch"] = epoch })
}

// edit puts a copy of a document under a key, with a change and a right checksum.
func (p *patient) edit(from, to string, change func(map[string]any)) {
	p.t.Helper()
	body, _, err := store.Read(p.t.Context(), p, from, &store.ReadOptions{Limit: 1 << 16})
	var doc map[string]any
	if err == nil {
		err = json.Unmarshal(body, &doc)
	}
	if err == nil {
		delete(doc, "checksum")
		change(doc)
		body, err = document.Encode(to, doc)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	fixture.Put(p.t, p, to, body)
}

// TestTrouble: a store that does not answer says nothing about the log, and the checks that need
// nothing of it are made.
func TestTrouble(t *testing.T) {
	overload := &store.Error{Op: "list", Status: 503}
	for prefix, c := range map[string]struct {
		check string
		made  string
	}{
		layout.ManifestPrefix: {"state", "leader,takeovers,uploads,others,content"},
		layout.PinPrefix:      {"pins", "leader,growth"},
		layout.DeltaPrefix:    {"published table", "pins,growth"},
		"group/":              {"group", "state,pins"},
	} {
		t.Run(c.check, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, logtest.WithGrace(10*time.Minute))
				p.fault = func(op, key string) error {
					if op == "list" && strings.HasPrefix(key, prefix) {
						return overload
					}
					return nil
				}
				found := examine(t, p, nil)
				for _, f := range found {
					if f.Level == Problem {
						t.Errorf("%+v", f)
					}
				}
				if f := of(found, c.check); len(f) != 1 || f[0].Level != Warning || !strings.Contains(f[0].What, "not checked") || f[0].Remedy == "" {
					t.Errorf("%+v", found)
				}
				for _, check := range strings.Split(c.made, ",") {
					if len(of(found, check)) != 1 {
						t.Errorf("nothing is said of %s: %+v", check, found)
					}
				}
			})
		})
	}
}

// TestOverLimit: an object that is larger than the log allows is damage, which no second look mends.
func TestOverLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := logtest.New(t, logtest.WithGrace(10*time.Minute), nil)
		l.Lead(1)
		tail := l.Newest().Tail()
		l.Put(layout.DataKey(tail.Position), l.Data(tail, strings.Repeat("x", 100)))
		p := &patient{Store: l.Mem, t: t}
		p.edit(layout.FormatKey, layout.FormatKey, func(doc map[string]any) {
			limits := doc["limits"].(map[string]any)
			limits["object"], limits["record"] = 64, 32
		})
		if f := of(examine(t, p, nil), "state"); len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].Remedy, "fencepost verify") {
			t.Errorf("%+v", f)
		}
	})
}

// TestClocks: the clocks of other machines do not decide. That this machine's is ahead is the same.
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		p.depose()
		p.lead()
		p.pin("fresh")
		for _, ahead := range []time.Duration{0, oldPin + day, -day} {
			found := examine(t, p, &Options{Now: func() time.Time { return time.Now().Add(ahead) }})
			inHealth(t, found, "clock", "takeovers")
			if f := of(found, "takeovers"); len(f) != 1 || f[0].Level != Warning {
				t.Errorf("%v ahead: %+v", ahead, f)
			}
		}
	})
}

// TestPublisherFollows: an edit that came while doctor looked is not missing if the publisher takes it.
func TestPublisherFollows(t *testing.T) {
	for name, publishes := range map[string]bool{"a publisher runs": true, "none runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := publishedLog(t)
				p.commit()
				go func() {
					time.Sleep(time.Second)
					if publishes {
						p.publish()
					}
				}()
				f := of(examine(t, p, nil), "published table")
				if want := map[bool]Level{true: OK, false: Warning}[publishes]; len(f) != 1 || f[0].Level != want {
					t.Errorf("%+v", f)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestGroup: of a group the store is checked too, and with Deep all that verify reads.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{Store: memstore.New(nil), t: t}
		if err := group.Create(t.Context(), p, &group.Options{Partitions: 2, Probe: quickProbe}); err != nil {
			t.Fatal(err)
		}
		p.rules = []store.Expiry{{Rule: "tidy", What: "deletes objects after 30 days"}}
		found := examine(t, p, nil)
		for _, check := range []string{"lifecycle rules", "store", "content"} {
			if len(of(found, check)) != 1 {
				t.Errorf("nothing is said of %s: %+v", check, found)
			}
		}
		if f := of(found, "lifecycle rules"); f[0].Level != Problem {
			t.Errorf("%+v", f)
		}
		p.rules[0].Prefix = group.PartitionsPrefix // of which a log alone has nothing
		if f := of(examine(t, p, nil), "lifecycle rules"); len(f) != 1 || f[0].Level != Problem {
			t.Errorf("%+v", f)
		}
		p.rules = nil
		fixture.Put(t, p, group.PartitionPrefix(0)+"/format.json", []byte("{"))
		found = examine(t, p, &Options{Deep: true, Probe: quickProbe})
		if f := of(found, "content"); len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].What, group.PartitionPrefix(0)) {
			t.Errorf("%+v", f)
		}
		if f := of(found, "store"); len(f) != 1 || !strings.Contains(f[0].What, "it keeps") {
			t.Errorf("%+v", f)
		}
		if err := p.Delete(t.Context(), "group/group.json"); err != nil {
			t.Fatal(err)
		}
		if f := of(examine(t, p, nil), "group"); len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].What, "no group/group.json") {
			t.Errorf("%+v", f)
		}
	})
}
