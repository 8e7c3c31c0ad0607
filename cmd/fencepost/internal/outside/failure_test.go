package outside_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// sick is a store in which requests below a prefix fail, or never end.
type sick struct {
	store.Store
	prefix   atomic.Value // a string
	hang     bool
	undated  bool
	sorted   bool // as most stores list
	failures atomic.Int64
}

func (s *sick) ill(ctx context.Context, key string) error {
	p, ok := s.prefix.Load().(string)
	if !ok || !strings.HasPrefix(key, p) {
		return nil
	}
	s.failures.Add(1)
	if s.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return &store.Error{Op: "get", Key: key, Err: errors.New("status 500")}
}

func (s *sick) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := s.ill(ctx, key); err != nil {
		return nil, err
	}
	obj, err := s.Store.Get(ctx, key, opts)
	if err == nil && s.undated {
		obj.Date, obj.LastModified = time.Time{}, time.Time{}
	}
	return obj, err
}

func (s *sick) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := s.ill(ctx, prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		if !s.sorted {
			s.Store.List(ctx, prefix, opts)(yield)
			return
		}
		var all []store.Info
		for info, err := range s.Store.List(ctx, prefix, opts) {
			if err != nil {
				yield(info, err)
				return
			}
			all = append(all, info)
		}
		slices.SortFunc(all, func(a, b store.Info) int { return strings.Compare(a.Key, b.Key) })
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// TestKnownSurvivesAFailure: what is known of a log stays when a part of it cannot be read.
func TestKnownSurvivesAFailure(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		n := lead(t, l.Mem, "ann")
		n.append(t, 100)
		st := &sick{Store: l.Mem}
		watching(t, 12, st, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			if s := state(h); s.Log == nil || left(s.Log).Objects < 100 || !s.Complete() {
				t.Fatalf("%+v", s.Log)
			}
			st.prefix.Store(layout.ManifestPrefix)
			for range 600 {
				time.Sleep(time.Second)
				if s := state(h); s.Log == nil || left(s.Log).Objects < 100 || len(s.Log.Terms) != 1 || !s.Log.Terms[0].Leads {
					t.Fatalf("%+v", s.Log)
				}
			}
			if s := state(h); !strings.Contains(s.Err, "500") || st.failures.Load() == 0 {
				t.Errorf("error %q", s.Err)
			}
			st.prefix.Store("nothing")
			time.Sleep(2 * time.Minute)
			wantKind(t, h, "log")
		})
	})
}

// TestUnknownIsNoZero: the metrics have nothing that is not read yet.
func TestUnknownIsNoZero(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		n := lead(t, l.Mem, "ann")
		n.append(t, 1)
		watching(t, 1, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			complete := false
			for minute := range 30 {
				s := state(h)
				var read outside.Parts
				if s.Log != nil {
					read = s.Log.Read
				}
				for metric, known := range map[string]bool{"fencepost_log_unfolded_objects": read.Manifest && read.Tail, "fencepost_log_pins": read.Pins, "fencepost_log_leader_leads": read.Leader} {
					if got := testutil.CollectAndCount(outside.Collector(h), metric) > 0; got != known {
						t.Fatalf("minute %d: %s is there: %t, known: %t", minute, metric, got, known)
					}
				}
				if s.Log != nil && len(s.Log.Terms) > 0 && !s.Log.Terms[0].Leads {
					t.Fatalf("minute %d: %+v", minute, s.Log.Terms)
				}
				complete = s.Complete()
				time.Sleep(time.Minute)
			}
			if !complete {
				t.Error("it was never complete")
			}
		})
	})
}

// TestUnfoldedAtAFailover: the number of objects that are not folded does not fall when another leader comes.
func TestUnfoldedAtAFailover(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		a := lead(t, l.Mem, "ann")
		a.append(t, 3000)
		watching(t, 12, &sick{Store: l.Mem, sorted: true}, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			_ = a.w.Close(t.Context())
			_ = a.Resign(t.Context())
			b := lead(t, l.Mem, "bob")
			for range 30 {
				b.append(t, 1)
				time.Sleep(10 * time.Second)
				if v := state(h).Log; left(v).Objects < 3000 {
					t.Fatalf("%d are not folded", left(v).Objects)
				}
			}
			// One that begins now knows at least what it has listed.
			watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
				time.Sleep(2 * time.Minute)
				if v := state(h).Log; !left(v).More || left(v).Objects < 2000 || left(v).Objects > 3100 {
					t.Errorf("%d are not folded, more %t", left(v).Objects, left(v).More)
				}
			})
		})
	})
}

// TestHandover: when one leader follows another, there is no look by which nobody leads.
func TestHandover(t *testing.T) {
	for _, kind := range []string{"log", "lock"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(nil)
				if kind == "log" {
					places[kind](t, mem)
				}
				campaign := func(name string) *leader.Term {
					e, err := leader.New(mem, layout.LockPrefix, &leader.Options{Identity: name, Clock: clock.Go()})
					if err != nil {
						t.Fatal(err)
					}
					term, err := e.Campaign(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return term
				}
				term := campaign("ann")
				defer func() { _ = term.Resign(context.Background()) }()
				watching(t, 12, mem, func(h *outside.Hub, _ *atomic.Int64) {
					time.Sleep(127 * time.Second) // between two ticks
					_ = term.Resign(t.Context())
					term = campaign("bob")
					for range 120 {
						time.Sleep(time.Second)
						s := state(h)
						var terms []survey.Term
						if s.Log != nil {
							terms = s.Log.Terms
						} else {
							terms = s.Lock.Terms
						}
						if len(terms) == 0 || !terms[0].Leads {
							t.Fatalf("%+v", terms)
						}
					}
				})
			})
		})
	}
}

// TestGroupIsAway: that the store of a group does not answer, or fails, is known after a look, and so is its return.
func TestGroupIsAway(t *testing.T) {
	for name, hang := range map[string]bool{"hangs": true, "fails": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &sick{Store: memstore.New(nil), hang: hang}
				places["group"](t, st.Store)
				watching(t, 12, st, func(h *outside.Hub, _ *atomic.Int64) {
					time.Sleep(2 * time.Minute)
					wantKind(t, h, "group")
					if b, err := json.Marshal(state(h).Group); err != nil || strings.Contains(string(b), "null") {
						t.Errorf("%s %v", b, err)
					}
					st.prefix.Store("")
					time.Sleep(65 * time.Second)
					if s := state(h); s.Err == "" || s.Group == nil {
						t.Errorf("%+v", s)
					}
					st.prefix.Store("nothing")
					time.Sleep(3 * time.Minute)
					wantKind(t, h, "group")
				})
			})
		})
	}
}

// TestCompactorWithoutDates: a compactor that was killed does not lead, also if the store tells no dates.
func TestCompactorWithoutDates(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		client := l.Faulty.Client("a")
		e, err := leader.New(client, layout.CompactorLockPrefix, &leader.Options{Identity: "cat", Clock: clock.Go()})
		if err == nil {
			_, err = e.Campaign(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		watching(t, 12, &sick{Store: l.Mem, undated: true}, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Minute)
			if c := state(h).Log.Compactor; !c.Leads {
				t.Errorf("%+v", c)
			}
			client.Crash()
			time.Sleep(10 * time.Minute)
			if c := state(h).Log.Compactor; c.State != "lapsed" {
				t.Errorf("%+v", c)
			}
		})
	})
}

// TestManyPins: all pins are counted, although only some are kept.
func TestManyPins(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		for range 205 {
			fixture.Put(t, l.Mem, layout.PinKey(uuid.NewString()), []byte("{}"))
		}
		watching(t, 6000, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Minute)
			if v := state(h).Log; v.PinCount != 205 || len(v.Pins) != 200 {
				t.Errorf("%d pins, %d kept", v.PinCount, len(v.Pins))
			}
		})
	})
}

// TestPublishedBefore: a commit that says nothing of the log does not hide the one before it, and a table that was
// deleted is not shown.
func TestPublishedBefore(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		f, err := manifest.ReadFormat(t.Context(), l.Mem, nil)
		if err != nil {
			t.Fatal(err)
		}
		commit := func(version int64, edits int) {
			body := `{"commitInfo":{"operation":"OPTIMIZE"}}` + "\n"
			if edits > 0 {
				body = fmt.Sprintf(`{"txn":{"appId":%q,"version":%d,"lastUpdated":1}}`+"\n", f.Log.String(), edits)
			}
			fixture.Put(t, l.Mem, layout.DeltaCommitKey(version), []byte(body))
		}
		want := func(h *outside.Hub, version int64, edits uint64) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			if p := state(h).Log.Published; p == nil || p.Version != version || p.Edits != edits {
				t.Errorf("%+v, want version %d with %d edits", p, version, edits)
			}
		}
		commit(0, 1)
		commit(1, 0)
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			want(h, 1, 1)
			commit(2, 5)
			commit(3, 0)
			commit(4, 0)
			want(h, 4, 5)
			commit(5, 0)
			want(h, 5, 5)
			for version := range int64(6) {
				if err := l.Mem.Delete(t.Context(), layout.DeltaCommitKey(version)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Minute)
			if p := state(h).Log.Published; p != nil {
				t.Errorf("%+v", p)
			}
			commit(0, 2)
			want(h, 0, 2)
		})
	})
}
