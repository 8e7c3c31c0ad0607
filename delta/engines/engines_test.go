//go:build engines

package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/writer"
)

// pythonEnv names the Python that has the engines of requirements.txt.
const pythonEnv = "FENCEPOST_ENGINES"

type order struct {
	ID   int64   `parquet:"id"`
	Name string  `parquet:"name"`
	Sum  float64 `parquet:"sum"`
}

// answer is what an engine has read.
type answer struct {
	Engine    string
	Version   *int64
	Newest    *int64
	Rows, IDs int64
	Sum       float64
}

// python runs engines.py.
func python(t *testing.T, into any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Getenv(pythonEnv), append([]string{"engines.py"}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("engines.py %v: %v\n%s", args, err, out)
	}
}

// table is a log on a directory, with what each edit makes of it.
type table struct {
	*testing.T
	st   store.Store
	dir  string
	mu   sync.Mutex
	want []answer // after each edit
}

func (t *table) fatal(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lead commits edits in one epoch: each adds rows, and some remove a file.
func (t *table) lead(epoch uint64, edits int) {
	ctx := t.Context()
	w, err := writer.Open(ctx, t.st, fence.NewToken(epoch), nil)
	t.fatal(err)
	type part struct {
		key string
		answer
	}
	var live []part
	for i := range edits {
		d, err := delta.NewWriter(ctx, w, &delta.WriterOptions[order]{})
		t.fatal(err)
		t.mu.Lock()
		now := t.want[len(t.want)-1]
		t.mu.Unlock()
		var added answer
		var rows []order
		for range 1 + rand.IntN(50) {
			id := rand.Int64N(1_000_000)
			rows = append(rows, order{ID: id, Name: fmt.Sprint("order ", id), Sum: float64(id) / 4})
			added.Rows, added.IDs, added.Sum = added.Rows+1, added.IDs+id, added.Sum+float64(id)/4
		}
		t.fatal(d.Write(ctx, rows))
		now.Rows, now.IDs, now.Sum = now.Rows+added.Rows, now.IDs+added.IDs, now.Sum+added.Sum
		var gone []string
		if len(live) > 3 && i%3 == 0 {
			gone = []string{live[0].key}
			now.Rows, now.IDs, now.Sum = now.Rows-live[0].Rows, now.IDs-live[0].IDs, now.Sum-live[0].Sum
			live = live[1:]
		}
		t.mu.Lock()
		t.want = append(t.want, now)
		t.mu.Unlock()
		files, err := d.Finish()
		t.fatal(err)
		live = append(live, part{files[0].Key, added})
		t.fatal(w.CommitFiles(ctx, manifest.Edit{Add: files, Remove: gone}))
	}
	t.fatal(w.Close(ctx))
}

// compact folds and prunes until ctx ends.
func (t *table) compact(ctx context.Context) {
	for n := uint64(1); ctx.Err() == nil; n++ {
		c, err := compactor.New(t.st, &compactor.Options{Token: fence.NewToken(n)})
		t.fatal(err)
		if _, err := c.Once(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		_ = sleep(ctx, 200*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *table) publisher() *delta.Publisher {
	root, src, err := delta.Beside(t.st)
	t.fatal(err)
	p, err := delta.Open(t.Context(), root, []delta.Source{src}, nil)
	t.fatal(err)
	return p
}

// publish runs publishers that are stopped in the middle, again and again.
func (t *table) publish(ctx context.Context) {
	for ctx.Err() == nil {
		life, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(time.Second))))
		if err := t.publisher().Run(life); life.Err() == nil {
			t.Error(err)
		}
		cancel()
	}
}

// edits returns how many edits a version has.
func (t *table) edits(version int64) int {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(t.dir, "file", "_delta_log", fmt.Sprintf("%020d.json", version)))
	t.fatal(err)
	n := 0
	for line := range strings.Lines(string(body)) {
		var a struct {
			Txn *struct{ Version int }
		}
		t.fatal(json.Unmarshal([]byte(line), &a))
		if a.Txn != nil {
			n = a.Txn.Version
		}
	}
	return n
}

// check reads with all engines, also at some versions, and compares.
func (t *table) check(newest int64) {
	t.Helper()
	versions := []string{"1", fmt.Sprint(newest / 2), fmt.Sprint(newest)}
	var got []answer
	python(t.T, &got, append([]string{"read", filepath.Join(t.dir, "file")}, versions...)...)
	for _, a := range got {
		v := newest
		if a.Version != nil {
			v = *a.Version
		}
		want := t.want[t.edits(v)]
		if a.Rows != want.Rows || a.IDs != want.IDs || a.Sum != want.Sum {
			t.Errorf("%s reads %d rows, ids %d, sum %v in version %d; want %d, %d, %v", a.Engine, a.Rows, a.IDs, a.Sum, v, want.Rows, want.IDs, want.Sum)
		}
	}
	if len(got) != 3*(len(versions)+1) {
		t.Errorf("%d answers", len(got))
	}
}

// TestEngines: other engines read the rows of the source, at the newest version and at older
// ones, while writers, a compactor and publishers work; and what they write is refused.
func TestEngines(t *testing.T) {
	if os.Getenv(pythonEnv) == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set: run make engines, which installs delta-rs, Polars and DuckDB", pythonEnv)
		}
		t.Skipf("delta-rs, Polars and DuckDB are not there: run make engines")
	}
	w := &table{T: t, dir: t.TempDir(), want: []answer{{}}}
	var err error
	w.st, err = dirstore.Open(w.dir, nil)
	w.fatal(err)
	_, err = manifest.Init(t.Context(), w.st, &manifest.InitOptions{Grace: time.Second})
	w.fatal(err)

	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() { w.compact(ctx) })
	g.Go(func() { w.publish(ctx) })
	g.Go(func() { w.publish(ctx) })
	w.lead(1, 60)
	r, err := w.publisher().Publish(t.Context())
	w.fatal(errors.Join(err, r.Err()))
	w.check(r.Version)
	w.lead(2, 80) // while they work
	cancel()
	g.Wait()
	r, err = w.publisher().Publish(t.Context())
	w.fatal(errors.Join(err, r.Err()))
	w.check(r.Version)
	t.Logf("%d edits are %d versions", len(w.want)-1, r.Version+1)
	w.foreign(r.Version)
}

// foreign lets another program write.
func (t *table) foreign(newest int64) {
	t.Helper()
	before, err := filepath.Glob(filepath.Join(t.dir, "file", "0*", "*"))
	t.fatal(err)
	ended := map[string]string{}
	python(t.T, &ended, "write", filepath.Join(t.dir, "file"))
	for name, how := range ended {
		// These two do not ask for features. They change nothing that a publisher believes.
		if mayDo := name == "checkpoint" || name == "cleanup"; !mayDo && !strings.Contains(how, "fencepost") {
			t.Errorf("%s ended with %s", name, how)
		}
	}
	after, err := filepath.Glob(filepath.Join(t.dir, "file", "0*", "*"))
	t.fatal(err)
	if !slices.Equal(before, after) || len(before) == 0 {
		t.Errorf("there were %d files, and now there are %d", len(before), len(after))
	}
	t.lead(3, 5)
	r, err := t.publisher().Publish(t.Context())
	t.fatal(errors.Join(err, r.Err()))
	if r.Version <= newest {
		t.Errorf("version %d comes after %d", r.Version, newest)
	}
	t.check(r.Version)
}
