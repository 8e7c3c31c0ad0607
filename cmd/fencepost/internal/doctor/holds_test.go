package doctor

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// fold runs the compactor once, which writes a manifest if there are new records.
func (p *patient) fold(epoch fence.Epoch) {
	p.t.Helper()
	p.foldWith(&compactor.Options{Token: fence.NewToken(epoch)})
}

func (p *patient) foldWith(o *compactor.Options) {
	p.t.Helper()
	c, err := compactor.New(p, o)
	if err == nil {
		_, err = c.Once(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// publisher opens the Delta table of the log.
func (p *patient) publisher() *delta.Publisher {
	p.t.Helper()
	root, source, err := delta.Beside(p)
	if err != nil {
		p.t.Fatal(err)
	}
	pub, err := delta.Open(p.t.Context(), root, []delta.Source{source}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return pub
}

func (p *patient) publish() {
	p.t.Helper()
	r, err := p.publisher().Publish(p.t.Context())
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// commit leads, and commits a row to the table.
func (p *patient) commit() {
	p.t.Helper()
	e, err := leader.New(p, layout.LockPrefix, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	err = e.Run(p.t.Context(), func(ctx context.Context, term *leader.Term) error {
		w, err := writer.Open(ctx, p, term.Token(), nil)
		if err != nil {
			return err
		}
		// The codec of Zstandard keeps channels, which one bubble of synctest makes and another uses.
		rows, err := delta.NewWriter(ctx, w, &delta.WriterOptions[struct{ ID int64 }]{Compression: delta.Plain})
		if err == nil {
			err = rows.Write(ctx, []struct{ ID int64 }{{1}})
		}
		if err == nil {
			err = rows.Commit(ctx)
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

// pinNames returns the names of the pins.
func (p *patient) pinNames() (names []string) {
	p.t.Helper()
	r, err := reader.Open(p.t.Context(), p, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	pins, err := r.Pins(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, pin := range pins {
		names = append(names, pin.Name)
	}
	return names
}

func (p *patient) deleteBelow(prefix string) {
	p.t.Helper()
	for info, err := range store.ListAll(p.t.Context(), p, prefix, nil, nil) {
		if err == nil {
			err = p.Delete(p.t.Context(), info.Key)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// publishedLog has a table that is published, and is folded as far as possible.
func publishedLog(t *testing.T) *patient {
	t.Helper()
	p := admit(t, logtest.WithGrace(10*time.Minute))
	p.commit()
	p.fold(2)
	p.publish()
	if names := p.pinNames(); len(names) != 1 || !strings.HasPrefix(names[0], holdPrefix) {
		t.Fatalf("the pins are %q", names)
	}
	return p
}

// TestHoldOfAnIdleTable: a log that is published and idle keeps its hold for ever. To remove it lets the
// files of a live table go, so nothing is said.
func TestHoldOfAnIdleTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishedLog(t)
		time.Sleep(oldPin + time.Hour)
		for _, f := range examine(t, p, nil) {
			if bad(f) {
				t.Errorf("%+v", f)
			}
			if f.Check == "pins" && !strings.Contains(f.What, "1 of them holds the published table") {
				t.Errorf("%+v", f)
			}
		}
		// And a publisher that runs moves it when there is something newer.
		p.lead()
		p.fold(3)
		p.publish()
		for _, f := range examine(t, p, nil) {
			if bad(f) {
				t.Errorf("%+v", f)
			}
		}
	})
}

// TestHoldMoves: a publisher may move its pin after doctor has read the table, and before it reads the pins.
func TestHoldMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := publishedLog(t)
		x := begin(p, nil)
		if err := x.openFormat(t.Context()); err != nil || !x.survey(t.Context()) {
			t.Fatal(err, x.found)
		}
		x.table(t.Context())
		time.Sleep(oldPin)
		p.commit()
		p.fold(3)
		p.publish()
		time.Sleep(oldPin)
		p.publish()
		if at := x.heldAt; len(p.pinNames()) != 1 || at == 0 {
			t.Fatalf("version %d is held by %q", at, p.pinNames())
		}
		x.pins(t.Context())
		if f := of(x.found, "pins"); len(f) != 1 || f[0].Level != OK {
			t.Errorf("%+v", f)
		}
	})
}

// TestAbandonedHolds: what is said of a hold that nobody moves or needs any more. Only of one without
// a table is it said that it may be unpinned.
func TestAbandonedHolds(t *testing.T) {
	for name, c := range map[string]struct {
		harm   func(p *patient)
		level  Level
		says   []string
		unpins bool
	}{
		"nobody publishes any more": {func(p *patient) {
			p.lead()
			p.fold(3)
		}, Warning, []string{"although the newest manifest is", "`fencepost publish --watch`", "`fencepost unpublish`"}, false},
		"the table was deleted": {func(p *patient) {
			p.deleteBelow(layout.DeltaPrefix)
			p.lead()
			p.fold(3)
		}, Warning, []string{"no table is published here", "published to another place too", "unpin 'delta/"}, true},
		"another table is there": {func(p *patient) {
			old := p.pinNames()[0]
			p.deleteBelow(layout.DeltaPrefix)
			p.commit()
			p.fold(3)
			p.publish()
			if names := p.pinNames(); len(names) != 2 || names[0] == names[1] {
				p.t.Fatalf("%q and now %q", old, names)
			}
		}, Warning, []string{"the table that is published here is another", "published to another place too", "unpin 'delta/"}, true},
		"it was taken out, and a pin stayed": {func(p *patient) {
			name := p.pinNames()[0]
			if _, err := p.publisher().Unpublish(p.t.Context()); err != nil {
				p.t.Fatal(err)
			}
			r, err := reader.Open(p.t.Context(), p, nil)
			if err == nil {
				_, err = r.Pin(p.t.Context(), name, 0, 0)
			}
			if err != nil {
				p.t.Fatal(err)
			}
			p.lead()
			p.fold(3)
		}, Warning, []string{"the log was taken out of the table here", "`fencepost unpublish` again", "published to another place too"}, true},
		"the hold was removed": {func(p *patient) {
			r, err := reader.Open(p.t.Context(), p, nil)
			if err == nil {
				err = r.Unpin(p.t.Context(), p.pinNames()[0])
			}
			if err != nil {
				p.t.Fatal(err)
			}
		}, Problem, []string{"no pin holds", "`fencepost publish --watch`"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := publishedLog(t)
				c.harm(p)
				time.Sleep(oldPin + time.Hour)
				found := examine(t, p, nil)
				n := 0
				for _, f := range found {
					if f.Check != "pins" || f.Level == OK {
						continue
					}
					n++
					for _, text := range c.says {
						if !strings.Contains(f.What+f.Remedy, text) {
							t.Errorf("%+v does not say %q", f, text)
						}
					}
					if f.Level != c.level || strings.Contains(f.Remedy, "unpin ") != c.unpins {
						t.Errorf("%+v", f)
					}
				}
				if n != 1 {
					t.Errorf("%d findings of pins: %+v", n, found)
				}
			})
		})
	}
}

// TestHoldInAnotherStore: without the store of the files nobody knows which table is there.
func TestHoldInAnotherStore(t *testing.T) {
	x := &examination{Options: Options{Now: time.Now}, state: &survey.Log{}, format: manifest.Format{Files: &manifest.Files{}}}
	pins := []manifest.Pin{{Name: holdPrefix + "x", Version: 7}}
	old := func(string, time.Time) time.Duration { return oldPin + time.Hour }
	x.state.Version = 7
	x.holds(t.Context(), pins, old)
	if len(x.found) > 0 {
		t.Errorf("no manifest is newer: %+v", x.found)
	}
	x.state.Version = 8
	x.holds(t.Context(), pins, old)
	if len(x.found) != 1 || !strings.Contains(x.found[0].Remedy, "--files") || strings.Contains(x.found[0].Remedy, "unpin") {
		t.Errorf("%+v", x.found)
	}
}
