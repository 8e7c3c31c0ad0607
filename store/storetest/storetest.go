package storetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

// TB is the part of [testing.TB] that the suite uses.
type TB interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Dial opens one more client of the store under test. Clients share nothing but the store:
// they have separate connections or handles. To close a client at the end, use Cleanup of the
// *testing.T that [Run] gets: a TB has none.
type Dial func(tb TB) store.Store

// clientsInRace is how many writers race, each over a client of its own.
const clientsInRace = 32

// Run runs every check as a subtest, over 32 clients that dial opens. The store may hold
// other objects: each check works below a random prefix of its own, and deletes what it
// wrote. Opts may be nil.
func Run(t *testing.T, dial Dial, opts *Options) {
	clients := make([]store.Store, clientsInRace)
	for i := range clients {
		clients[i] = dial(t)
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.on(t, clients, *cmp.Or(opts, &Options{})) })
	}
}

// check is one subtest. It takes a TB, so that the suite's own tests can see it fail.
type check struct {
	name string
	run  func(s *suite)
}

var checks = []check{
	{"CreateRace", createRace},
	{"SwapRace", swapRace},
	{"SwapChain", swapChain},
	{"Conditions", conditions},
	{"ReadAfterWrite", readAfterWrite},
	{"Ranges", ranges},
	{"NotModified", notModified},
	{"Versions", versions},
	{"Dates", dates},
	{"TornReads", tornReads},
	{"ListAndDeleteMany", listAndDeleteMany},
	{"ListBasics", listBasics},
	{"T37_ListNewest", listNewest},
	{"Delete", deletes},
	{"OddKeys", oddKeys},
	{"BadKeys", badKeys},
	{"Bodies", bodies},
	{"Upload", uploads},
	{"UploadInvisible", uploadInvisible},
	{"UploadFailing", uploadFailing},
	{"UploadCreate", uploadCreate},
	{"CancelledBefore", cancelledBefore},
	{"CancelledDuring", cancelledDuring},
}

func (c check) on(tb TB, clients []store.Store, o Options) {
	tb.Helper()
	s := &suite{TB: tb, opts: o, raw: clients, prefix: "storetest-" + rand.Text() + "/" + c.name}
	for _, raw := range clients {
		st, err := store.Sub(raw, s.prefix)
		if err != nil {
			tb.Fatalf("Sub: %v", err)
		}
		s.clients = append(s.clients, st)
	}
	c.run(s)
	s.sweep()
}

// suite is a check that runs.
type suite struct {
	TB
	opts    Options
	prefix  string
	raw     []store.Store // the clients that dial returned
	clients []store.Store // the same, below prefix
	// quickest is how long the quickest write of a race has taken, 0 before the first race.
	quickest time.Duration
}

// st is the client for checks of one client.
func (s *suite) st() store.Store { return s.clients[0] }

// client returns the i-th client, counted around.
func (s *suite) client(i int) store.Store { return s.clients[i%len(s.clients)] }

// rounds returns the number of rounds: full, or quick if Options.Quick is set.
func (s *suite) rounds(full, quick int) int {
	if s.opts.Quick {
		return quick
	}
	return full
}

// sweep deletes what the check has written.
func (s *suite) sweep() {
	s.Helper()
	var keys []string
	for info, err := range store.ListAll(s.Context(), s.st(), "", nil, nil) {
		if err != nil {
			s.Errorf("listing what is left over: %v", err)
			return
		}
		keys = append(keys, info.Key)
	}
	if err := store.DeleteAll(s.Context(), s.st(), keys, nil); err != nil {
		s.Errorf("deleting what is left over: %v", err)
	}
}

// newBody returns size random bytes, at least 16 so that no two are equal.
func newBody(size int) []byte {
	b := make([]byte, max(size, 16))
	_, _ = rand.Read(b) // never fails
	return b
}

// put writes and must succeed.
func (s *suite) put(st store.Store, key string, body []byte, cond store.Condition) store.Info {
	s.Helper()
	info, err := st.Put(s.Context(), key, body, &store.PutOptions{If: cond})
	if err != nil {
		s.Fatalf("Put(%q, %v): %v", key, cond, err)
	}
	s.checkInfo("Put", info, key, int64(len(body)))
	return info
}

// checkInfo checks what every Info of a write or read must hold.
func (s *suite) checkInfo(op string, info store.Info, key string, size int64) {
	s.Helper()
	if info.Key != key {
		s.Errorf("%s(%q): Info.Key is %q", op, key, info.Key)
	}
	if info.Version == "" {
		s.Errorf("%s(%q): Info.Version is empty", op, key)
	}
	if info.Size != size {
		s.Errorf("%s(%q): Info.Size is %d, want %d", op, key, info.Size, size)
	}
}

// read reads an object, or a range of it, and returns the first error.
func (s *suite) read(st store.Store, key string, opts *store.GetOptions) ([]byte, store.Info, error) {
	obj, err := st.Get(s.Context(), key, opts)
	if err != nil {
		return nil, store.Info{}, err
	}
	body, err := io.ReadAll(obj.Body)
	return body, obj.Info, errors.Join(err, obj.Body.Close())
}

// wantBody expects body under key and returns its Info.
func (s *suite) wantBody(st store.Store, key string, body []byte) store.Info {
	s.Helper()
	got, info, err := s.read(st, key, nil)
	if err != nil {
		s.Fatalf("Get(%q): %v", key, err)
	}
	if !bytes.Equal(got, body) {
		s.Errorf("Get(%q): %d bytes that are not the %d expected: %.32x…, want %.32x…", key, len(got), len(body), got, body)
	}
	s.checkInfo("Get", info, key, int64(len(body)))
	return info
}

// wantError expects an error of this kind that is, or wraps, a [store.Error].
func (s *suite) wantError(what string, err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Errorf("%s: got %v, want %v", what, err, kind)
		return
	}
	if e := (*store.Error)(nil); !errors.As(err, &e) {
		s.Errorf("%s: the error %v is no *store.Error", what, err)
	}
}

func (s *suite) wantAbsent(st store.Store, key string) {
	s.Helper()
	_, _, err := s.read(st, key, nil)
	s.wantError("Get of absent "+key, err, store.ErrNotFound)
}

// list returns what is under prefix by key. A key that comes twice is an error.
func (s *suite) list(st store.Store, prefix string, opts *store.ListOptions) map[string]store.Info {
	s.Helper()
	found := map[string]store.Info{}
	for info, err := range st.List(s.Context(), prefix, opts) {
		if err != nil {
			s.Fatalf("List(%q): %v", prefix, err)
		}
		if _, twice := found[info.Key]; twice {
			s.Errorf("List(%q) yields %q twice", prefix, info.Key)
		}
		found[info.Key] = info
	}
	return found
}

// wantListed expects exactly the keys of want under prefix, with their versions
// and sizes.
func (s *suite) wantListed(st store.Store, prefix string, want map[string]store.Info) {
	s.Helper()
	found := s.list(st, prefix, nil)
	missing, surplus := 0, 0
	for key, w := range want {
		f, ok := found[key]
		switch {
		case !ok:
			if missing++; missing <= 3 {
				s.Errorf("List(%q) lacks %q", prefix, key)
			}
		case f.Version != w.Version || f.Size != w.Size:
			s.Errorf("List(%q) shows %q with version %q and %d bytes, want %q and %d", prefix, key, f.Version, f.Size, w.Version, w.Size)
		}
	}
	for key := range found {
		if _, ok := want[key]; !ok {
			if surplus++; surplus <= 3 {
				s.Errorf("List(%q) yields %q, which does not belong there", prefix, key)
			}
		}
	}
	if missing > 3 || surplus > 3 {
		s.Errorf("List(%q): %d keys missing and %d too many of %d", prefix, missing, surplus, len(want))
	}
}

// all runs n functions at once and waits for them. They return errors, since only the
// test's own goroutine may end the test.
func (s *suite) all(n int, f func(i int) error) {
	s.Helper()
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	if err := g.Wait(); err != nil {
		s.Fatalf("%v", err)
	}
}
