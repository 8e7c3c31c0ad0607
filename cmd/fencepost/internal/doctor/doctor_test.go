package doctor

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// patient is a sound log with a store that the test may harm.
type patient struct {
	store.Store
	t       *testing.T
	rules   []store.Expiry
	denied  error
	uploads []store.Info
	// files is the store for the files of the table, if it is not the log's.
	files store.Store
	// fault returns the error of a request, or nil. It may be nil.
	fault func(op, key string) error
	// breaks returns the error with which a listing breaks off after n keys, or nil. It may be nil.
	breaks func(prefix string, n int) error
}

func (p *patient) fails(op, key string) error {
	if p.fault == nil {
		return nil
	}
	return p.fault(op, key)
}

func (p *patient) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := p.fails("get", key); err != nil {
		return nil, err
	}
	return p.Store.Get(ctx, key, opts)
}

func (p *patient) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := p.fails("put", key); err != nil {
		return store.Info{}, err
	}
	return p.Store.Put(ctx, key, body, opts)
}

func (p *patient) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if err := p.fails("list", prefix); err != nil {
		return func(yield func(store.Info, error) bool) { yield(store.Info{}, err) }
	}
	if p.breaks == nil {
		return p.Store.List(ctx, prefix, opts)
	}
	return func(yield func(store.Info, error) bool) {
		n := 0
		for info, err := range p.Store.List(ctx, prefix, opts) {
			if broken := p.breaks(prefix, n); broken != nil {
				yield(store.Info{}, broken)
				return
			}
			if n++; !yield(info, err) {
				return
			}
		}
	}
}

func (p *patient) Expiries(context.Context, string) ([]store.Expiry, error) {
	return slices.Clone(p.rules), p.denied
}

func (p *patient) AbortUploads(_ context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	for _, u := range p.uploads {
		if doomed(u) {
			p.t.Error("an upload would be ended")
		}
	}
	return 0, cmp.Or(p.denied, p.fails("uploads", prefix))
}

// admit makes a sound log, in virtual time.
func admit(t *testing.T, f manifest.Format) *patient {
	t.Helper()
	p := &patient{Store: logtest.New(t, f, nil).Mem, t: t}
	p.lead()
	c, err := compactor.New(p, &compactor.Options{Token: fence.NewToken(1)})
	if err == nil {
		_, err = c.Once(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lead is a leadership with an append.
func (p *patient) lead() {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	err = e.Run(p.t.Context(), func(ctx context.Context, term *leader.Term) error {
		w, err := writer.Open(ctx, p, term.Token(), &writer.Options{Files: p.files})
		if err == nil {
			_, err = w.Append(ctx, [][]byte{[]byte("record")})
		}
		if err == nil {
			err = w.Close(ctx)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// crash leaves a lock that nobody renews any more.
func (p *patient) crash() {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	term, err := e.Campaign(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	rec, err := e.Leader(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	body, _, err := store.Read(p.t.Context(), p, rec.Key, &store.ReadOptions{Limit: 1 << 16})
	if err != nil {
		p.t.Fatal(err)
	}
	_ = term.Resign(p.t.Context())
	if _, err := p.Put(p.t.Context(), rec.Key, body, nil); err != nil {
		p.t.Fatal(err)
	}
	time.Sleep(time.Minute)
}

// corrupt leaves a newest lock that cannot be read.
func (p *patient) corrupt() {
	p.t.Helper()
	if _, err := p.Put(p.t.Context(), layout.LockKey(layout.LockPrefix, 20_000), []byte("{"), nil); err != nil {
		p.t.Fatal(err)
	}
}

// depose steps leaders down, one after another.
func (p *patient) depose() {
	p.t.Helper()
	for range manyTakeovers {
		p.step()
	}
}

// step leads, and is stepped down by another.
func (p *patient) step() {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	term, err := e.Campaign(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	operator, err := leader.New(p, layout.LockPrefix, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := operator.StepDown(p.t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
		p.t.Fatal(err)
	}
	_ = term.Resign(p.t.Context())
}

// stepAlive leads, is stepped down, and says that it has stopped.
func (p *patient) stepAlive() {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	term, err := e.Campaign(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := e.StepDown(p.t.Context(), &leader.StepDownOptions{Reason: "maintenance"}); err != nil {
		p.t.Fatal(err)
	}
	<-term.Context().Done()
	_ = term.Resign(p.t.Context())
}

func examine(t *testing.T, st store.Store, o *Options) []Finding {
	t.Helper()
	found, err := Examine(t.Context(), st, o)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// bad reports whether a finding wants attention.
func bad(f Finding) bool { return f.Level == Warning || f.Level == Problem }

// wants wants one finding that is not OK, and a remedy with it.
func wants(t *testing.T, found []Finding, check string, level Level, says string) {
	t.Helper()
	n := 0
	for _, f := range found {
		switch {
		case f.Check == check && f.Level == level && strings.Contains(f.What+f.Remedy, says) && f.Remedy != "":
			n++
		case bad(f):
			t.Errorf("besides %s: %+v", check, f)
		}
	}
	if n != 1 {
		t.Errorf("no %s of %s that says %q: %+v", level, check, says, found)
	}
}

// TestHealthy: a sound log has nothing that needs attention, and the doctor changes nothing.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		for _, deep := range []bool{false, true} {
			found := examine(t, p, &Options{Deep: deep})
			for _, f := range found {
				if bad(f) {
					t.Errorf("deep %v: %+v", deep, f)
				}
			}
			if len(found) < 13 {
				t.Errorf("deep %v: only %d checks", deep, len(found))
			}
		}
	})
}

// TestIll: each harm is found, and there is a remedy.
func TestIll(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(p *patient)
		deep  bool
		check string
		level Level
		says  string
	}{
		"a rule of the bucket": {
			func(p *patient) {
				p.rules = []store.Expiry{{Rule: "tidy", Prefix: "data/", What: "deletes objects after 30 days"}}
			}, false,
			"lifecycle rules", Problem, "limit the rule to other prefixes",
		},
		"a crash":        {(*patient).crash, false, "leader", Warning, "start a writer"},
		"a corrupt lock": {(*patient).corrupt, false, "leader", Problem, "step-down --force --validity D URL"},
		"a leader that was deposed, and nobody follows": {func(p *patient) {
			p.step()
		}, false, "leader", Warning, "deposed by"},
		"leaders that depose each other": {func(p *patient) {
			p.depose()
			p.lead()
		}, false, "takeovers", Warning, "make the validity longer"},
		"a leader that was stepped down and said that it has stopped": {
			(*patient).stepAlive, false,
			"leader", Warning, "was deposed (stepped down: maintenance)",
		},
		"leaders that were stepped down and said so": {func(p *patient) {
			for range manyTakeovers {
				p.stepAlive()
			}
			p.lead()
		}, false, "takeovers", Warning, "make the validity longer"},
		"no compactor": {func(p *patient) { p.lead(); time.Sleep(longWait + time.Minute) }, false, "compaction", Warning, "compact --watch"},
		"a forgotten pin": {func(p *patient) {
			r, err := reader.Open(p.t.Context(), p, nil)
			if err == nil {
				_, err = r.Pin(p.t.Context(), "old", 0, 0)
			}
			if err != nil {
				p.t.Fatal(err)
			}
			time.Sleep(oldPin + time.Hour)
		}, false, "pins", Warning, "unpin 'old' URL"},
		"something foreign": {func(p *patient) {
			if _, err := p.Put(p.t.Context(), "notes.txt", []byte("x"), nil); err != nil {
				p.t.Fatal(err)
			}
		}, false, "growth", Warning, "Leave those of another log below this URL"},
		"an upload that broke off": {func(p *patient) {
			now := time.Now()
			p.uploads = []store.Info{{Key: "file/x", LastModified: now.Add(-oldUpload - time.Hour), Date: now}, {Key: "file/y", LastModified: now, Date: now}}
		}, false, "uploads", Warning, "paid for: 1"},
		"a lost segment": {func(p *patient) {
			for info, err := range p.List(p.t.Context(), layout.SegmentPrefix, nil) {
				if err == nil {
					err = p.Delete(p.t.Context(), info.Key)
				}
				if err != nil {
					p.t.Fatal(err)
				}
			}
		}, true, "content", Problem, "segment/"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, logtest.WithGrace(10*time.Minute))
				c.harm(p)
				wants(t, examine(t, p, &Options{Deep: c.deep}), c.check, c.level, c.says)
			})
		})
	}
}

// TestNoRights: what may not be read is not called sound.
func TestNoRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		p.denied = &store.Error{Op: "get", Kind: store.ErrDenied}
		warned := map[string]bool{}
		for _, f := range examine(t, p, nil) {
			if bad(f) {
				warned[f.Check] = f.Level == Warning && strings.Contains(f.What, "not checked") && f.Remedy != ""
			}
		}
		if len(warned) != 2 || !warned["lifecycle rules"] || !warned["uploads"] {
			t.Errorf("%v", warned)
		}
	})
}

// TestFormat: what was chosen when the log was made.
func TestFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := logtest.Format()
		f.Grace = 0
		wants(t, examine(t, admit(t, f), nil), "grace", Warning, "not atomic")
		f = logtest.WithGrace(time.Minute)
		f.Probe = nil
		wants(t, examine(t, admit(t, f), nil), "store", Warning, "fencepost probe")
		p := admit(t, logtest.WithGrace(time.Minute))
		later := func() time.Time { return time.Now().Add(time.Minute) }
		wants(t, examine(t, p, &Options{Now: later}), "clock", Warning, "differ by 1m0s")
		if _, err := Examine(t.Context(), logtest.New(t, f, nil).Mem, nil); err != nil {
			t.Error(err)
		}
		if err := p.Delete(t.Context(), layout.FormatKey); err != nil {
			t.Fatal(err)
		}
		if _, err := Examine(t.Context(), p, nil); !errors.Is(err, manifest.ErrNotInitialized) {
			t.Error(err)
		}
	})
}

// TestMuch: what takes too long to make in a test.
func TestMuch(t *testing.T) {
	sound := func() *examination {
		s := &survey.Log{Unfolded: &survey.Unfolded{}, Objects: map[inspect.Kind]verify.Count{}, BeforeFloor: &verify.Count{}}
		s.Tail, s.Noted = fence.Position{Epoch: 3, Seq: 9}, fence.Position{Epoch: 3, Seq: 5}
		return &examination{state: s, Options: Options{Now: time.Now}}
	}
	for says, harm := range map[string]func(x *examination){
		"":                                  func(*examination) {},
		"there are 8196 objects":            func(x *examination) { x.state.Tail.Seq += manySlots },
		"in epoch 7 there are 8193 objects": func(x *examination) { x.state.Tail = fence.Position{Epoch: 7, Seq: manySlots + 1} },
		"0 epochs are left":                 func(x *examination) { x.state.Compactor.Epoch = fence.MaxEpoch },
		"old locks":                         func(x *examination) { x.state.Objects[inspect.Lock] = verify.Count{Objects: manyLocks + 1} },
		"folded and not deleted":            func(x *examination) { x.state.Overdue = manyFreed + 1 },
		"is the compactor": func(x *examination) {
			x.state.Compactor = survey.Term{Leads: true, Holder: "me"}
			x.state.Unfolded.Objects = manyObjects + 1
		},
	} {
		x := sound()
		harm(x)
		x.checkpoints(t.Context())
		x.growth(t.Context())
		x.compaction(t.Context())
		n := 0
		for _, f := range x.found {
			if !bad(f) {
				continue
			}
			if n++; says == "" || !strings.Contains(f.What+f.Remedy, says) {
				t.Errorf("%q: %+v", says, f)
			}
		}
		if says != "" && n != 1 {
			t.Errorf("%q: %d warnings of %+v", says, n, x.found)
		}
	}
}

// TestNamed: what the log names and the listing lacks is found without --deep.
func TestNamed(t *testing.T) {
	remove := func(p *patient, key string) {
		p.t.Helper()
		if _, _, err := store.Read(p.t.Context(), p, key, &store.ReadOptions{Limit: 1 << 20}); err != nil {
			p.t.Fatal(err)
		}
		if err := p.Delete(p.t.Context(), key); err != nil {
			p.t.Fatal(err)
		}
	}
	slot := func(e fence.Epoch, seq uint64) string { return layout.DataKey(fence.Position{Epoch: e, Seq: seq}) }
	segment := func(p *patient) string {
		for info, err := range p.List(p.t.Context(), layout.SegmentPrefix, nil) {
			if err == nil {
				return info.Key
			}
		}
		p.t.Fatal("there is no segment")
		return ""
	}
	write := func(p *patient, n int) {
		w, err := writer.Open(p.t.Context(), p, fence.NewToken(2), nil)
		for range n {
			if err == nil {
				_, err = w.Append(p.t.Context(), [][]byte{[]byte("record")})
			}
		}
		if err == nil {
			err = w.Close(p.t.Context())
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		harm func(p *patient)
		says string
	}{
		"a slot in the middle":            {func(p *patient) { write(p, 4); remove(p, slot(2, 2)) }, slot(2, 2)},
		"the same, and a leader after it": {func(p *patient) { write(p, 4); remove(p, slot(2, 2)); p.append(3) }, slot(2, 2)},
		"a seal before the floor":         {func(p *patient) { remove(p, slot(0, 1)) }, slot(0, 1)},
		"a seal that is not folded":       {func(p *patient) { write(p, 2); p.append(3); remove(p, slot(2, 3)); p.append(4) }, slot(2, 3)},
		"a segment":                       {func(p *patient) { remove(p, segment(p)) }, layout.SegmentPrefix},
		"a segment that was cut":          {func(p *patient) { _, _ = p.Put(p.t.Context(), segment(p), []byte("x"), nil) }, layout.SegmentPrefix},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := admit(t, logtest.WithGrace(10*time.Minute))
				c.harm(p)
				f := of(examine(t, p, nil), "objects")
				if len(f) != 1 || f[0].Level != Problem || !strings.Contains(f[0].What, c.says) || f[0].Remedy == "" {
					t.Errorf("%+v", f)
				}
			})
		})
	}
}

// TestUnseen: what was not looked at is not called sound.
func TestUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		p.denied = errors.ErrUnsupported
		for _, deep := range []bool{false, true} {
			found := examine(t, p, &Options{Deep: deep})
			for check, says := range map[string]string{"lifecycle rules": "check yourself", "store": "a full disk", "content": "not read"} {
				f := of(found, check)
				if unseen := !deep || check == "lifecycle rules"; len(f) != 1 || (f[0].Level == Unseen) != unseen || unseen && !strings.Contains(f[0].What, says) {
					t.Errorf("deep %v, %s: %+v", deep, check, f)
				}
			}
		}
	})
}

// TestNoCompactorYet: many objects wait, and nobody has ever compacted.
func TestNoCompactorYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{Store: logtest.New(t, logtest.WithGrace(10*time.Minute), nil).Mem, t: t}
		for range someObjects/2 + 1 {
			p.lead() // an object and a seal
		}
		wants(t, examine(t, p, nil), "compaction", Warning, "no compactor runs")
	})
}

// TestCompactorCrashed: a lock that has lapsed is a crash, however little waits.
func TestCompactorCrashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		e, err := leader.New(p, layout.KindCompactorLock, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, crash := context.WithCancel(t.Context())
		go func() { _ = e.Run(ctx, func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return nil }) }()
		time.Sleep(time.Second)
		p.fault = func(op, key string) error {
			if op == "put" && strings.HasPrefix(key, layout.KindCompactorLock) {
				return errors.New("it is dead")
			}
			return nil
		}
		crash()
		time.Sleep(25 * time.Second)
		wants(t, examine(t, p, nil), "compaction", Warning, "has crashed; nobody follows")
	})
}

// TestClocksOfTwoMachines: where the clocks decide how old a lock is, a holder that renews it is not called dead.
func TestClocksOfTwoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, logtest.WithGrace(10*time.Minute))
		e, err := leader.New(p, layout.LockPrefix, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = e.Run(ctx, func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return nil }) }()
		time.Sleep(time.Second)
		found := examine(t, later{p, 5 * time.Minute}, nil)
		if f := of(found, "leader"); len(f) != 1 || f[0].Level != OK {
			t.Errorf("%+v", f)
		}
		if f := of(found, "clock"); len(f) < 1 || f[0].Level != Warning && f[len(f)-1].Level != Warning {
			t.Errorf("%+v", f)
		}
	})
}

// later is a directory that a machine with another clock sees.
type later struct {
	*patient
	by time.Duration
}

func (l later) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	o, err := l.patient.Get(ctx, key, opts)
	if err == nil {
		o.Date = time.Now().Add(l.by)
	}
	return o, err
}
