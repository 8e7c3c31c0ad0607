package storetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// The suite is tested on a correct store, on which every check must pass, and on
// that store broken in one way at a time, on which the check named must fail.

// recorder is a TB that only notes what a check says.
type recorder struct {
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failures runs a check as testing would and returns what it complains of.
func failures(t *testing.T, c check, opts *Options, dial func() store.Store) []string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &recorder{ctx: ctx}
	clients := make([]store.Store, clientsInRace)
	for i := range clients {
		clients[i] = dial()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.on(r, clients, *opts)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors
}

func find(t *testing.T, name string) check {
	for _, c := range checks {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("there is no check %q", name)
	return check{}
}

func TestCorrectStorePasses(t *testing.T) {
	for _, opts := range []*memstore.Options{nil, {ContentVersions: true}} {
		st := memstore.New(opts)
		for _, c := range checks {
			if errs := failures(t, c, &Options{Quick: true}, func() store.Store { return st }); len(errs) > 0 {
				t.Errorf("%s fails on a correct store: %s", c.name, strings.Join(errs, "\n"))
			}
			if n, _ := st.Len(); n > 0 {
				t.Errorf("%s leaves %d objects behind", c.name, n)
			}
		}
	}
}

func TestBrokenStoresFail(t *testing.T) {
	killed := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for _, name := range m.fails {
				killed[name] = true
				// A check that races may miss it once.
				var errs []string
				for range 20 {
					if errs = failures(t, find(t, name), &Options{Quick: true}, m.dialer()); len(errs) > 0 {
						break
					}
				}
				if len(errs) == 0 {
					t.Errorf("%s does not notice", name)
					continue
				}
				t.Logf("%s: %s", name, errs[0])
			}
		})
	}
	for _, c := range checks {
		if !killed[c.name] {
			t.Errorf("no broken store makes %s fail", c.name)
		}
	}
}

// TestReportedLacks: what Options admit is no failure, and nothing else is
// admitted with it.
func TestReportedLacks(t *testing.T) {
	for _, tt := range []struct {
		mutant, check string
		opts          Options
		passes        bool
	}{
		{"unsure losers", "CreateRace", Options{UnsureLosers: true}, true},
		{"unsure losers", "SwapRace", Options{UnsureLosers: true}, true},
		{"unsure losers", "SwapChain", Options{UnsureLosers: true}, true},
		{"create is check, then put", "CreateRace", Options{UnsureLosers: true}, false},
		{"upload ignores create", "UploadCreate", Options{UploadOverwrites: true}, false},
		{"large upload ignores create", "UploadCreate", Options{UploadOverwrites: true}, true},
		{"Get tells the version of the moment before", "TornReads", Options{OldVersions: true}, true},
		{"Get tells the version of the moment after", "TornReads", Options{OldVersions: true}, false},
		{"Get reads in two halves", "TornReads", Options{OldVersions: true}, false},
		{"Upload of parts tells a version of its own", "Upload", Options{UploadVersions: true}, true},
		{"upload believes its hint", "Upload", Options{UploadVersions: true}, false},
		{"list is loose", "T37_ListNewest", Options{LooseListing: true}, true},
	} {
		t.Run(tt.mutant+"/"+tt.check, func(t *testing.T) {
			for _, m := range mutants {
				if m.name != tt.mutant {
					continue
				}
				tt.opts.Quick = true
				errs := failures(t, find(t, tt.check), &tt.opts, m.dialer())
				for try := 1; try < 20 && len(errs) == 0 && !tt.passes; try++ { // a race needs luck
					errs = failures(t, find(t, tt.check), &tt.opts, m.dialer())
				}
				if passes := len(errs) == 0; passes != tt.passes {
					t.Errorf("passes: %v, want %v: %s", passes, tt.passes, strings.Join(errs, "\n"))
				}
				return
			}
			t.Fatal("no such mutant")
		})
	}
}

// TestOdds: how often a single run of the suite notices a store in memory that checks first and
// writes afterwards. What it prints for one processor and for two is in the package comment. It
// asserts little, since another program may have the processors.
func TestOdds(t *testing.T) {
	if !test.Whole() {
		t.Skip("TestBrokenStoresFail has the same stores")
	}
	const runs = 10
	for _, m := range mutants {
		if !strings.Contains(m.name, "is check, then") || m.each {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			found := 0
			for range runs {
				if len(failures(t, find(t, m.fails[0]), new(Options), m.dialer())) > 0 {
					found++
				}
			}
			t.Logf("%s noticed in %d of %d runs, with GOMAXPROCS %d", m.fails[0], found, runs, runtime.GOMAXPROCS(0))
			if found == 0 && runtime.GOMAXPROCS(0) > 1 {
				t.Errorf("%s noticed in none of %d runs", m.fails[0], runs)
			}
		})
	}
}
