//go:build integration && unix

package engines

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

var (
	killTime = flag.Duration("kill-time", 15*time.Second, "how long workers are killed on each store")
	pause    = flag.Duration("pause", 100*time.Millisecond, "how long a writer pauses after a commit at most; fewer versions are read in the end if it is longer")
	places   = flag.String("stores", "dir,versitygw", "the stores: dir, versitygw, minio")
	travel   = flag.Int("versions", 40, "at how many versions each engine reads the table in the end; 0 for all")
)

// leastReads is how often each engine reads while workers are killed, however long that takes.
const leastReads = 3

// world is a log with its table, and what works on it.
type world struct {
	*testing.T
	url, table string // of the log, for store.Open, and of the table, for engines
	st         store.Store
	h          *history
	engines    []*engine
}

func (w *world) fatal(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// place is a store, and how engines and workers reach it.
type place struct {
	url   func(folder string) string // for store.Open
	table func(folder string) string // for engines
	env   []string
	dir   string // empty if it is no directory
}

func newPlace(t *testing.T, name string) place {
	t.Helper()
	kinds := map[string]*servers.Kind{"versitygw": servers.VersityGW, "minio": servers.MinIO}
	if name == "dir" {
		dir := t.TempDir()
		u := url.URL{Scheme: "file", Path: dir}
		return place{
			dir:   dir,
			url:   func(folder string) string { return u.JoinPath(folder).String() },
			table: func(folder string) string { return filepath.Join(dir, folder, "file") },
		}
	}
	if kinds[name] == nil {
		t.Fatalf("there is no store %q", name)
	}
	s := servers.Start(t, kinds[name])
	return place{
		url:   s.URL,
		table: func(folder string) string { return "s3://" + path.Join(s.Bucket, folder, "file") },
		env:   append(slices.Clone(s.Env), "AWS_ENDPOINT_URL="+s.Endpoint, "AWS_ALLOW_HTTP=true"),
	}
}

func (p *place) open(t *testing.T, folder string) (store.Store, store.Store) {
	t.Helper()
	st, err := store.Open(t.Context(), p.url(folder))
	if err != nil {
		t.Fatal(err)
	}
	root, err := store.Sub(st, "file")
	if err != nil {
		t.Fatal(err)
	}
	return st, root
}

// TestEngines: other engines read the rows of the source, whatever is killed meanwhile, and at each
// version; what they write is refused; and a vacuum by a program that knows no feature deletes
// nothing that is published, and nothing of the log.
func TestEngines(t *testing.T) {
	pythons := installed(t)
	for name := range strings.SplitSeq(*places, ",") {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, name)
			st, root := p.open(t, "orders")
			w := &world{T: t, url: p.url("orders"), table: p.table("orders"), st: st, h: newHistory(root)}
			_, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Grace: time.Second})
			w.fatal(err)
			for _, engine := range slices.Sorted(maps.Keys(pythons)) {
				w.engines = append(w.engines, start(t, engine, pythons[engine], p.env))
			}
			w.underKill()
			w.settled()
			w.travel()
			w.pages(pythons["duckdb"], p.env)
			w.foreign()
			w.vacuums(&p)
		})
	}
}

// underKill lets engines read while workers are killed.
func (w *world) underKill() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	c := &crew{t: w.T, url: w.url}
	c.start(ctx)
	var wait sync.WaitGroup
	begun := time.Now()
	reads := make([]atomic.Int64, len(w.engines))
	for i, e := range w.engines {
		wait.Go(func() {
			for !w.Failed() && (time.Since(begun) < *killTime || reads[i].Load() < leastReads) {
				if w.look(e) {
					reads[i].Add(1)
				}
			}
		})
	}
	wait.Wait()
	took := time.Since(begun)
	cancel()
	c.g.Wait()
	if w.Failed() {
		w.FailNow()
	}
	for i, e := range w.engines {
		w.Logf("%s has read %d times in %v, each time a version exactly; %d workers were killed meanwhile", e.version, 2*reads[i].Load(), took.Round(time.Second), c.killed.Load())
	}
}

// look reads the newest version with an engine, and some other. It returns false if there is no
// version yet.
func (w *world) look(e *engine) bool {
	before, err := w.h.newest(w.Context())
	if err != nil || before < 0 {
		if err != nil {
			w.Error(err)
		}
		time.Sleep(10 * time.Millisecond)
		return false
	}
	got, err := e.read(w.table, -1)
	if err != nil {
		w.Error(err)
		return false
	}
	after, err := w.h.newest(w.Context())
	if err != nil {
		w.Error(err)
		return false
	}
	found := false
	for v := before; v <= after && !found; v++ {
		found = got.String() == w.h.at(v).content().String()
	}
	if !found {
		w.Errorf("%s reads %v, which is none of the versions %d to %d", e.name, got, before, after)
	}
	w.readAt(e, rand.IntN(after+1))
	return true
}

// readAt reads a version with an engine, and compares.
func (w *world) readAt(e *engine, version int) {
	w.Helper()
	got, err := e.read(w.table, version)
	if err != nil {
		w.Error(err)
	} else if want := w.h.at(version).content(); got.String() != want.String() {
		w.Errorf("%s reads %v in version %d, want %v", e.name, got, version, want)
	}
}

// settled publishes the rest, and compares the newest version with the log's cursor.
func (w *world) settled() int {
	w.Helper()
	o, err := writer.Open(w.Context(), w.st, token(), nil)
	w.fatal(err)
	var all span
	w.fatal(json.Unmarshal(o.Recovered().Cursor, &all))
	w.fatal(o.Close(w.Context()))
	p, err := publisher(w.Context(), w.st)
	w.fatal(err)
	r, err := p.Publish(w.Context())
	w.fatal(err)
	w.fatal(r.Err())
	newest, err := w.h.newest(w.Context())
	w.fatal(err)
	if got := w.h.at(newest); got != all || r.Version != int64(newest) {
		w.Fatalf("version %d has rows %v, and version %d is published; the cursor is %v", newest, got, r.Version, all)
	}
	return newest
}

// travel reads the newest version and older ones with all engines.
func (w *world) travel() {
	w.Helper()
	newest := w.settled()
	step := 1
	if *travel > 0 {
		step = max(1, newest / *travel)
	}
	for _, e := range w.engines {
		n := 0
		for v := newest; v >= 0 && !w.Failed(); v -= step {
			w.readAt(e, v)
			n++
		}
		w.Logf("%s reads %d of the versions 0 to %d, each with the rows that its commits name", e.version, n, newest)
	}
	if w.Failed() {
		w.FailNow()
	}
}

// contents returns checksums of all objects of a store.
func contents(ctx context.Context, st store.Store) (map[string]uint32, error) {
	all := map[string]uint32{}
	for info, err := range store.ListAll(ctx, st, "", nil, nil) {
		if err != nil {
			return nil, err
		}
		body, _, err := store.Read(ctx, st, info.Key, &store.ReadOptions{Limit: 16 << 20})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", info.Key, err)
		}
		all[info.Key] = crc32.ChecksumIEEE(body)
	}
	return all, nil
}

// refusal is how the engines say that they do not know the table's feature.
var refusal = regexp.MustCompile(`Unknown\("fencepost"\)|Feature 'fencepost' is not supported|unsupported by Delta Lake "[^"]*": fencepost\.|Cannot drop fencepost because it is not supported`)

// unasked are writes that ask for no feature. They change nothing that a publisher believes.
var unasked = []string{"delta-rs checkpoint", "delta-rs cleanup"}

// foreign lets the engines write. Then the log goes on.
func (w *world) foreign() {
	w.Helper()
	before, err := contents(w.Context(), w.st)
	w.fatal(err)
	for _, e := range w.engines {
		ended := map[string]string{}
		w.fatal(e.ask(map[string]any{"do": "write", "table": w.table}, &ended))
		for _, name := range slices.Sorted(maps.Keys(ended)) {
			w.Logf("%s, %s: %s", e.version, name, ended[name])
			if how := ended[name]; !slices.Contains(unasked, e.name+" "+name) && !refusal.MatchString(how) {
				w.Errorf("%s, %s ended with: %s", e.name, name, how)
			}
		}
		after, err := contents(w.Context(), w.st)
		w.fatal(err)
		for key, sum := range before {
			if now, ok := after[key]; (!ok || now != sum) && !strings.HasSuffix(key, "/_last_checkpoint") {
				w.Errorf("%s has deleted or changed %s", e.name, key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(after)) {
			if _, ok := before[key]; !ok {
				w.Logf("%s has left %s", e.name, key)
			}
		}
		before = after
	}
	newest := w.settled()
	ctx, cancel := context.WithCancel(w.Context())
	c := &crew{t: w.T, url: w.url}
	c.start(ctx)
	for now := newest; now <= newest && !w.Failed(); now, err = w.h.newest(w.Context()) {
		w.fatal(err)
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	c.g.Wait()
	w.fatal(err)
	w.settled()
	for _, e := range w.engines {
		w.look(e)
	}
	report, err := verify.Run(w.Context(), w.st, nil)
	w.fatal(err)
	if !report.OK() {
		w.Errorf("the log is damaged: %v", report.Problems)
	}
}
