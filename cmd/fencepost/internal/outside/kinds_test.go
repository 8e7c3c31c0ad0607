package outside_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// places make each kind of place.
var places = map[string]func(*testing.T, store.Store){
	"log": func(t *testing.T, st store.Store) {
		format := logtest.Format()
		fixture.Put(t, st, layout.FormatKey, document.Sum(layout.FormatKey, []byte(fixture.JSON(t, format))))
	},
	"group": func(t *testing.T, st store.Store) {
		if err := group.Create(t.Context(), st, &group.Options{Partitions: 3, Clock: clock.Go(), Probe: &probe.Options{Clients: 2, Rounds: 1, Refusals: 2}}); err != nil {
			t.Fatal(err)
		}
	},
	"lock": func(t *testing.T, st store.Store) {
		e, err := leader.New(st, layout.LockPrefix, &leader.Options{Identity: "ann", Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err == nil {
			err = term.Resign(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	},
	"": func(*testing.T, store.Store) {},
}

func empty(t *testing.T, st store.Store) {
	for info, err := range st.List(t.Context(), "", nil) {
		if err == nil {
			err = st.Delete(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wantKind wants the state of one kind, without anything of others.
func wantKind(t *testing.T, h *outside.Hub, kind string) {
	t.Helper()
	s := state(h)
	if s.Kind != kind || (s.Log != nil) != (kind == "log") || (s.Group != nil) != (kind == "group") || (s.Lock != nil) != (kind == "lock") {
		t.Errorf("want %q: %+v", kind, s)
	}
	if (s.Err == "") != (kind != "") || kind == "" && !strings.Contains(s.Err, "no log here") {
		t.Errorf("want %q: error %q", kind, s.Err)
	}
}

// TestKindChanges: a place may become one of another kind, or nothing. A hub sees that, and forgets what was there.
func TestKindChanges(t *testing.T) {
	for from, first := range places {
		for to, then := range places {
			if from == to {
				continue
			}
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memstore.New(nil)
					first(t, mem)
					watching(t, 12, mem, func(h *outside.Hub, _ *atomic.Int64) {
						time.Sleep(2 * time.Minute)
						wantKind(t, h, from)
						empty(t, mem)
						then(t, mem)
						time.Sleep(7 * time.Minute)
						wantKind(t, h, to)
					})
				})
			})
		}
	}
}

// TestKindBesides: something is made beside what is there. A log counts more than a group, and that more than a lock.
func TestKindBesides(t *testing.T) {
	for from, to := range map[string][]string{"lock": {"group", "log"}, "group": {"log"}} {
		for _, to := range to {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memstore.New(nil)
					places[from](t, mem)
					watching(t, 12, mem, func(h *outside.Hub, _ *atomic.Int64) {
						time.Sleep(2 * time.Minute)
						wantKind(t, h, from)
						places[to](t, mem)
						time.Sleep(7 * time.Minute)
						wantKind(t, h, to)
					})
				})
			})
		}
	}
}

// TestFailureStays: while a part of a log cannot be read, the state says so all the time, also when other parts are read.
func TestFailureStays(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		n := lead(t, l.Mem, "ann")
		n.append(t, 3)
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			wantKind(t, h, "log")
			fixture.Put(t, l.Mem, layout.LockKey(layout.CompactorLockPrefix, 1), []byte("rot"))
			time.Sleep(5 * time.Minute)
			for range 300 {
				time.Sleep(time.Second)
				if s := state(h); s.Err == "" || s.Log == nil {
					t.Fatalf("%+v", s)
				}
			}
		})
	})
}

// TestKindIsShownAtOnce: when a look has found that something else is there, the next look does not wait for its time.
func TestKindIsShownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		places["lock"](t, mem)
		found := make(chan struct{}, 1)
		st := store.Hooked(mem, store.Hooks{Answered: func(a store.Answer) {
			if a.Err == nil && a.Key == layout.FormatKey {
				select {
				case found <- struct{}{}:
				default:
				}
			}
		}}, clock.Go())
		watching(t, 12, st, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			places["log"](t, mem)
			<-found
			time.Sleep(15 * time.Second) // a look comes each 20 s
			wantKind(t, h, "log")
		})
	})
}

// TestLogWithoutFormat: a log whose format was deleted is damaged. Its lock does not pass for one without a log, but one
// beside foreign objects does.
func TestLogWithoutFormat(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		lead(t, l.Mem, "ann").append(t, 3)
		time.Sleep(time.Minute) // until there is a manifest
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			wantKind(t, h, "log")
			if err := l.Mem.Delete(t.Context(), layout.FormatKey); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			for range 100 {
				time.Sleep(time.Second)
				if s := state(h); s.Kind == "lock" || !strings.Contains(s.Err, "has no format.json") {
					t.Fatalf("%+v", s)
				}
			}
		})
	})
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		places["lock"](t, mem)
		fixture.Put(t, mem, layout.DataPrefix+"january.csv", []byte("1,2"))
		watching(t, 12, mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			wantKind(t, h, "lock")
		})
	})
}
