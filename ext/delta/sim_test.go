package delta

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

var (
	seeds = flag.Int("seeds", 4, "how many histories to make")
	seed  = flag.Uint64("seed", 1, "the first one's seed")
)

// simRetention is so short that many versions leave it during a history.
const simRetention = 24 * time.Hour

// TestHistories makes whole histories from seeds, on a store that loses, repeats and delays
// requests: leaders commit edits, a compactor folds and prunes, and publishers publish, sleep
// for weeks with a request on its way, and wake up.
func TestHistories(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 2)
	}
	var all simCounts
	for i := range n {
		s := *seed + uint64(i)
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Millisecond)
				newSim(t, s, &all).run()
			})
		})
	}
	t.Logf("%d histories: %d edits, %d versions, %d tries lost, %d rounds, %d failed, %d pauses, %d checks, %d holes, %d cleaned, %d versions without an edit", n,
		all.edits.Load(), all.versions.Load(), all.tries.Load(), all.rounds.Load(), all.failed.Load(), all.pauses.Load(), all.checks.Load(), all.holes.Load(), all.cleaned.Load(), all.renewed.Load())
	if !t.Failed() && n >= 40 {
		for name, c := range map[string]*atomic.Int64{"tries lost": &all.tries, "pauses": &all.pauses, "creates in a hole": &all.holes, "cleaned": &all.cleaned, "folded": &all.folded, "version without an edit": &all.renewed} {
			if c.Load() == 0 {
				t.Errorf("no history had any %s", name)
			}
		}
	}
}

type simCounts struct {
	edits, versions, tries, rounds, failed, pauses, checks, holes, cleaned, folded, renewed atomic.Int64
}

type simVersion struct {
	files []string
	edits uint64
}

type sim struct {
	*logtest.Log
	*simCounts
	rng    *rand.Rand
	faulty *faultstore.Store
	body   []byte // of every file
	over   atomic.Bool

	mu     sync.Mutex
	states []map[string]bool // the live files after each edit
	acked  uint64
	// seen are the versions that were found to be sound: the files of each, by its object.
	seen map[store.Version]simVersion
	// built is the newest version that a check has built, from the objects of a listing.
	built *state
	from  listing
	// newest is the highest version and txn that anybody was told of.
	newest    int64
	published uint64
}

func newSim(t *testing.T, seed uint64, counts *simCounts) *sim {
	rng := rand.New(rand.NewPCG(seed, 0))
	l := logtest.New(t, logtest.WithGrace(time.Second), nil)
	s := &sim{Log: l, simCounts: counts, rng: rng, newest: -1, states: []map[string]bool{{}}, seen: map[store.Version]simVersion{}}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[struct{ ID int64 }](&b)
	if _, err := w.Write([]struct{ ID int64 }{{1}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.body = b.Bytes()
	bad := rng.Float64() * 0.05
	s.faulty = faultstore.New(l.Mem, &faultstore.Options{
		Seed: seed, Clock: clock.Go(), Hook: s.fault, After: s.after,
		Rates: faultstore.Rates{Fail: bad, LoseReply: bad, Echo: bad, Late: bad, Duplicate: bad, LateOps: 64, MaxDelay: 100 * time.Millisecond},
	})
	return s
}

// fault lets a publisher sleep before a request arrives, most often before a create.
func (s *sim) fault(op faultstore.Op) faultstore.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := 0.002
	if op.Kind == faultstore.Put && strings.HasSuffix(op.Key, ".json") && strings.Contains(op.Key, logPrefix) {
		p = 0.1
	}
	if !strings.HasPrefix(op.Client, "p") || s.over.Load() || s.rng.Float64() >= p {
		return faultstore.Fault{}
	}
	s.pauses.Add(1)
	return faultstore.Fault{Delay: s.span(time.Minute, 30*24*time.Hour)}
}

// after counts the versions that were created where others had been deleted.
func (s *sim) after(_ context.Context, op faultstore.Op, err error) {
	if v, k := parseKey(strings.TrimPrefix(op.Key, filePrefix)); op.Kind == faultstore.Put && k == aCommit && err == nil && s.Has(filePrefix+checkpointKey(v-v%4+4)) {
		s.holes.Add(1)
	}
}

// span returns a time between two, any order of magnitude as likely as another.
func (s *sim) span(least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Exp(s.rng.Float64()*math.Log(float64(most)/float64(least))))
}

func (s *sim) sleep(least, most time.Duration) {
	s.mu.Lock()
	d := s.span(least, most)
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *sim) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *sim) run() {
	var g sync.WaitGroup
	g.Go(s.compacts)
	for i := range 2 + s.roll(2) {
		g.Go(func() { s.publishes(fmt.Sprint("p", i)) })
	}
	s.leads(40)
	s.over.Store(true)
	g.Wait()
	s.finish()
}

// leads commits edits, in some epochs.
func (s *sim) leads(edits int) {
	var w *writer.Writer
	for n := range edits {
		if w == nil || s.roll(10) == 0 {
			if w != nil {
				s.Close(w)
			}
			w = s.Open(nil)
		}
		s.mu.Lock()
		live := maps.Clone(s.states[len(s.states)-1])
		s.mu.Unlock()
		var e manifest.Edit
		for _, key := range slices.Sorted(maps.Keys(live)) {
			if s.roll(3) == 0 {
				e.Remove = append(e.Remove, key)
				delete(live, key)
			}
		}
		for range 1 + s.roll(3) {
			f, err := w.CreateFile(s.Context(), ".parquet", 0)
			if err == nil {
				_, err = f.Write(s.body)
			}
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				s.Fatal(err)
			}
			e.Add = append(e.Add, f.File())
			live[f.Key()] = true
		}
		s.mu.Lock()
		s.states = append(s.states, live) // before it is there, so that nobody sees it earlier
		s.mu.Unlock()
		if err := w.CommitFiles(s.Context(), e); err != nil {
			s.Fatal(err)
		}
		s.mu.Lock()
		s.acked = uint64(n + 1)
		s.mu.Unlock()
		s.edits.Add(1)
		s.sleep(10*time.Millisecond, 20*time.Hour)
		if s.roll(15) == 0 {
			s.idles(w)
		}
	}
	s.Close(w)
}

// idles lets days pass in which the log has records and no edit.
func (s *sim) idles(w *writer.Writer) {
	for range 2 + s.roll(4) {
		if _, err := w.Append(s.Context(), [][]byte{[]byte("no edit")}); err != nil {
			s.Fatal(err)
		}
		s.sleep(12*time.Hour, 2*simRetention)
	}
}

func (s *sim) compacts() {
	for !s.over.Load() {
		s.compact()
		s.check()
		s.sleep(time.Minute, 10*time.Hour)
	}
}

func (s *sim) compact() {
	s.mu.Lock()
	s.Token++
	token := s.Token
	s.mu.Unlock()
	c, err := compactor.New(s.Mem, &compactor.Options{Token: fence.NewToken(token), Settle: logtest.Quick, Clock: clock.Go(), NoCompress: true})
	if err == nil {
		_, err = c.Once(s.Context())
	}
	if err != nil {
		s.Errorf("compactor: %v", err)
	}
	s.folded.Add(1)
}

var simSettle = &store.SettleOptions{Backoff: time.Millisecond, MaxBackoff: time.Second, Reads: 3, Attempt: 10000 * time.Hour}

func (s *sim) open(st store.Store) *Publisher {
	root, src, err := Beside(st)
	if err != nil {
		s.Fatal(err)
	}
	p, err := Open(s.Context(), root, []Source{src}, &Options{Settle: simSettle, Clock: clock.Go(), Retention: simRetention})
	if err != nil {
		s.Errorf("open: %v", err)
		return nil
	}
	p.CheckpointEvery(4)
	p.tables[0].most = 5
	return p
}

func (s *sim) publishes(name string) {
	st := s.faulty.Client(name)
	var p *Publisher
	for !s.over.Load() {
		if p == nil || s.roll(8) == 0 {
			if p = s.open(st); p == nil {
				continue
			}
		}
		s.mu.Lock()
		acked := s.acked
		s.mu.Unlock()
		s.rounds.Add(1)
		r, err := p.Publish(s.Context())
		s.versions.Add(int64(r.Versions))
		s.tries.Add(int64(r.Tries))
		if err = errors.Join(err, r.Err()); err != nil {
			s.failed.Add(1)
			if !errors.Is(err, faultstore.ErrInjected) && !errors.Is(err, store.ErrUnknown) {
				s.Errorf("%s: %v", name, err)
			}
		} else {
			s.told(name, r, acked)
		}
		s.check()
		s.sleep(time.Second, 10*time.Hour)
	}
}

// told notes what a publisher has reported.
func (s *sim) told(name string, r Report, acked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := r.Sources[0].Published; got < acked {
		s.Errorf("%s has published %d edits, and %d were acknowledged before", name, got, acked)
	}
	s.newest, s.published = max(s.newest, r.Version), max(s.published, r.Sources[0].Published)
}

// check looks at the table as an engine does: at the newest version, and at each one within the
// retention.
func (s *sim) check() {
	s.mu.Lock()
	newest, published := s.newest, s.published
	s.mu.Unlock()
	root, _, _ := Beside(s.Mem)
	t := &table{st: root, settle: logtest.Quick, clock: clock.Go(), foreign: func(string, string) {}}
	for range 100 {
		err := s.look(t, newest, published)
		if err == nil {
			s.checks.Add(1)
			return
		}
		if !errors.Is(err, errGap) && !errors.Is(err, store.ErrNotFound) {
			s.Errorf("check: %v", err)
			return
		}
	}
	s.Errorf("check: versions vanish")
}

func (s *sim) look(t *table, newest int64, published uint64) error {
	l, err := t.list(s.Context(), 0)
	if err != nil || l.high < 0 {
		return err
	}
	// What is built from the same objects is the same. Most checks find those of the check before.
	s.mu.Lock()
	same := func(a, b store.Info) bool { return a.Version == b.Version }
	now, known := s.built, maps.EqualFunc(l.commits, s.from.commits, same) && maps.EqualFunc(l.checkpoints, s.from.checkpoints, same)
	s.mu.Unlock()
	if !known {
		if now, err = t.cold(s.Context(), l); err != nil {
			return err
		}
		s.mu.Lock()
		s.built, s.from = now, *l
		s.mu.Unlock()
	}
	if edits := s.edited(now); now.version < newest || edits < published {
		return fmt.Errorf("the newest version is %d with %d edits, after %d with %d", now.version, edits, newest, published)
	}
	oldest := slices.Min(slices.Collect(maps.Keys(l.commits)))
	if oldest > 0 {
		s.cleaned.Add(1)
	}
	edits := s.edited(now)
	for v := now.version; v >= oldest; v-- {
		if l.commits[v].Key == "" {
			break // below it there is junk
		}
		if age, _ := l.commits[v+1].Age(); v < now.version && age >= simRetention {
			break
		}
		e, err := s.sound(t, l, v)
		if err != nil {
			return fmt.Errorf("version %d is within the retention: %w", v, err)
		}
		if e > edits {
			return fmt.Errorf("version %d has %d edits, and version %d after it %d", v, e, v+1, edits)
		}
		edits = e
	}
	return nil
}

func (s *sim) edited(st *state) uint64 { return st.txns[s.Format.Log.String()] }

// sound checks that a version is a state of the log, and that all its files are there.
func (s *sim) sound(t *table, l *listing, v int64) (edits uint64, err error) {
	s.mu.Lock()
	seen, ok := s.seen[l.commits[v].Version]
	s.mu.Unlock()
	if !ok {
		if seen, err = s.first(t, l, v); err != nil {
			return 0, err
		}
		s.mu.Lock()
		s.seen[l.commits[v].Version] = seen
		s.mu.Unlock()
	}
	for _, key := range seen.files {
		if !s.Has(key) {
			return 0, fmt.Errorf("it names %s, which is gone", key)
		}
	}
	return seen.edits, nil
}

// first compares a version with the log.
func (s *sim) first(t *table, l *listing, v int64) (seen simVersion, err error) {
	st, _, err := t.at(s.Context(), l, v)
	if err != nil {
		return seen, err
	}
	have := map[string]bool{}
	for path := range st.files {
		have[filePrefix+path] = true
		seen.files = append(seen.files, filePrefix+path)
	}
	seen.edits = s.edited(st)
	if before, ok := s.seenEdits(l, v-1); ok && before == seen.edits {
		s.renewed.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen.edits >= uint64(len(s.states)) {
		return seen, fmt.Errorf("it has %d edits, there are %d", seen.edits, len(s.states)-1)
	}
	if want := s.states[seen.edits]; !maps.Equal(want, have) {
		return seen, fmt.Errorf("it has %d files, after edit %d there were %d", len(have), seen.edits, len(want))
	}
	return seen, nil
}

// seenEdits returns how many edits a version has that was looked at before.
func (s *sim) seenEdits(l *listing, v int64) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[l.commits[v].Version]
	return seen.edits, ok && seen.edits > 0
}

// finish publishes without faults, and checks that what nobody needs is let go.
func (s *sim) finish() {
	p := s.open(s.Mem)
	r, err := p.Publish(s.Context())
	if err = errors.Join(err, r.Err()); err != nil || r.Sources[0].Published != s.acked {
		s.Fatalf("the last round: %+v, %v", r, err)
	}
	s.check()
	time.Sleep(2 * simRetention)
	w := s.Open(nil)
	f, err := w.CreateFile(s.Context(), ".parquet", 0)
	if err == nil {
		_, err = f.Write(s.body)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		s.Fatal(err)
	}
	live := maps.Clone(s.states[len(s.states)-1])
	live[f.Key()] = true
	s.states = append(s.states, live)
	if err := w.CommitFiles(s.Context(), manifest.Edit{Add: []manifest.File{f.File()}}); err != nil {
		s.Fatal(err)
	}
	s.Close(w)
	for range 3 {
		s.compact() // so that there is a newer version to pin
		if r, err = p.Publish(s.Context()); err != nil || r.Err() != nil {
			s.Fatal(err, r.Err())
		}
		s.check()
		time.Sleep(2 * simRetention)
	}
	for range 3 {
		s.compact()
		time.Sleep(time.Minute)
	}
	if got := s.Keys(filePrefix); len(slices.DeleteFunc(got, func(key string) bool { return strings.HasPrefix(key, filePrefix+logPrefix) })) < len(live) {
		s.Errorf("files are gone")
	}
	pins, err := s.State.Pins(s.Context())
	if err != nil || len(pins) > 2 {
		s.Errorf("%d pins are left, %v", len(pins), err)
	}
	for _, key := range s.Keys(filePrefix) {
		if !strings.HasPrefix(key, filePrefix+logPrefix) && !live[key] {
			s.Errorf("%s was removed long ago, and nothing lets go of it", key)
		}
	}
	_ = reader.Oldest
}
