package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// rivals are two logs with a publisher each, of one table.
type rivals struct {
	*testing.T
	root    *faultstore.Store
	sources []delta.Source
	writers []*writer.Writer
	names   []string
	all     []*delta.Publisher
}

func inRivalry(t *testing.T, f func(t *testing.T, r *rivals)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Millisecond)
		mem, sources, all := fleet(t, 2)
		r := &rivals{T: t, sources: sources, writers: all, names: []string{"a", "b"}}
		r.root = faultstore.New(mem, &faultstore.Options{Clock: clock.Go()})
		for i, name := range r.names {
			p := r.publisher(name, i)
			p.CheckpointEvery(4)
			r.all = append(r.all, p)
		}
		f(t, r)
	})
}

// publisher opens a publisher of some of the logs.
func (r *rivals) publisher(client string, logs ...int) *delta.Publisher {
	r.Helper()
	var sources []delta.Source
	for _, i := range logs {
		sources = append(sources, r.sources[i])
	}
	p, err := delta.Open(context.Background(), r.root.Client(client), sources, &delta.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// publish commits a file to a log, and publishes that.
func (r *rivals) publish(i int) delta.Report {
	r.Helper()
	commitTo(r.T, r.writers[i], []order{{ID: 1}})
	return r.round(r.all[i])
}

func (r *rivals) round(p *delta.Publisher) delta.Report {
	r.Helper()
	got, err := p.Publish(context.Background())
	if err = errors.Join(err, got.Err()); err != nil {
		r.Fatal(err)
	}
	return got
}

// complete checks that the table has all files, as one sees it who comes new.
func (r *rivals) complete(files int) {
	r.Helper()
	if got := r.round(r.publisher("new", 0, 1)); got.Versions != 0 || got.Files != files {
		r.Errorf("another publisher finds %+v, want all %d files, and nothing to do", got, files)
	}
}

// A publisher sleeps. The version after the one that it knows is deleted meanwhile, so its create
// succeeds in the hole. It finds that out, and publishes once more.
//
// guard:delta-shown. Without this load: A is the only publisher of its log, knows Delta version 7, and
// sleeps before it creates version 8; publishers of other logs go on to version 300, and log cleanup
// deletes versions 0 to 199; version 8 is absent, so A's create is applied; A reports its edits as
// published, but nobody reads version 8.
//
// guard:delta-warm-fits. Otherwise a publisher begins again from a checkpoint. Without this check: A is
// the only publisher of its log, knows Delta version 8, and sleeps for a month; publishers of other
// logs go on to version 300, and log cleanup deletes versions 0 to 199; A finds no commit 9, takes
// version 8 for the newest, and creates version 9; A reports its edits as published, but nobody reads
// version 9.
func TestPublisherThatWakesInAHole(t *testing.T) {
	inRivalry(t, func(t *testing.T, r *rivals) {
		r.publish(0)
		for range 8 {
			r.publish(1)
		}
		time.Sleep(8 * day)
		r.publish(1) // version 10; those before the checkpoint of version 8 are deleted
		if _, _, err := store.Read(t.Context(), r.root, "_delta_log/00000000000000000002.json", &store.ReadOptions{Limit: 1 << 20}); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("there is no hole, so this tests nothing: %v", err)
		}
		if got := r.publish(0); got.Version != 11 || got.Versions != 2 {
			t.Errorf("%+v, want version 11 after one in the hole", got)
		}
		r.complete(11)
	})
}

// Two publishers compute the same version, and one of them sleeps before it creates it.
//
// guard:delta-create. Without this condition: publishers A and B of different logs both compute version
// 8; A creates it; B overwrites it with a version 8 that lacks A's files; A creates version 9 after the
// version 8 that it knows; the checksum in version 9 does not fit B's version 8, and no other publisher
// can read the table any more.
func TestVersionThatIsCreatedTwice(t *testing.T) {
	inRivalry(t, func(t *testing.T, r *rivals) {
		r.publish(0)
		const key = "_delta_log/00000000000000000002.json"
		var body []byte
		slept := r.root.BeforeFirst(func(op faultstore.Op) bool {
			return op.Client == "a" && op.Kind == faultstore.Put && op.Key == key
		}, func(context.Context) {
			r.publish(1)
			body = r.body(key)
		})
		if got := r.publish(0); got.Version != 3 || !slept() {
			t.Errorf("%+v, want version 3", got)
		}
		if !bytes.Equal(r.body(key), body) {
			t.Error("version 2 is another one now")
		}
		r.complete(3)
	})
}

func (r *rivals) body(key string) []byte {
	r.Helper()
	body, _, err := store.Read(context.Background(), r.root, key, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		r.Fatal(err)
	}
	return body
}

// A publisher sleeps before it looks at the hint of the last checkpoint, or before it writes it. The
// hint names a checkpoint that is there.
//
// guard:delta-last-forward. The object _last_checkpoint tells engines the newest Delta checkpoint.
// Without this check: publisher A writes the checkpoint of Delta version 100, and pauses before it
// reads _last_checkpoint; others write checkpoint 200, and log cleanup deletes checkpoint 100; A reads
// _last_checkpoint, which names 200, and swaps it to 100; engines that start there do not find the
// checkpoint.
func TestHintOfADeletedCheckpoint(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.Get, faultstore.Put} {
		for _, mine := range []int64{4, 8} { // the first hint is created, and the second one replaces it
			t.Run(fmt.Sprint(kind, mine), func(t *testing.T) {
				inRivalry(t, func(t *testing.T, r *rivals) {
					for range mine - 1 {
						r.publish(0)
					}
					slept := r.root.BeforeFirst(func(op faultstore.Op) bool {
						return op.Client == "a" && op.Kind == kind && op.Key == "_delta_log/_last_checkpoint"
					}, func(context.Context) {
						for range 5 {
							r.publish(1)
						}
						time.Sleep(8 * day)
						r.publish(1)
					})
					r.publish(0)
					var last struct{ Version int64 }
					if err := json.Unmarshal(r.body("_delta_log/_last_checkpoint"), &last); err != nil || !slept() || last.Version != mine+4 {
						t.Errorf("the hint names version %d, want %d; slept: %v, %v", last.Version, mine+4, slept(), err)
					}
					r.body(fmt.Sprintf("_delta_log/%020d.checkpoint.parquet", last.Version))
				})
			})
		}
	}
}

// TestTenPublishersOfTen: ten workers own a log each, and each of them publishes all ten logs, as those of
// examples/kafka-lake do. All commit at the same moment. Each log is published within three rounds of
// each publisher, and they try a version twice at most, in the mean.
func TestTenPublishersOfTen(t *testing.T) {
	const n, times, most = 10, 30, 3
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Millisecond)
		mem, sources, writers := fleet(t, n)
		// A request takes up to 56 ms.
		counted := faultstore.New(mem, &faultstore.Options{Clock: clock.Go(), Rates: faultstore.Rates{MaxDelay: 56 * time.Millisecond}})
		for i := range sources {
			var err error
			if sources[i].Log, err = store.Sub(counted, fmt.Sprint("log", i)); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var edits uint64                // that each log has
		var rounds, worst, versions int // rounds is the most that a publisher needed since the last commits
		seen := make([]int, n)          // rounds of each publisher since then, -1 when it has seen all
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range n {
			p, err := delta.Open(ctx, counted, sources, &delta.Options{Settle: logtest.Quick, Clock: clock.Go(), Hooks: delta.Hooks{Round: func(r delta.Round) {
				mu.Lock()
				defer mu.Unlock()
				versions += r.Report.Versions
				if seen[i] < 0 || edits == 0 {
					return
				}
				seen[i]++
				rounds = max(rounds, seen[i])
				if !slices.ContainsFunc(r.Report.Sources, func(s delta.SourceReport) bool { return s.Published < edits }) && len(r.Report.Sources) == n {
					seen[i] = -1
				}
			}}})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() { _ = p.Run(ctx) })
		}
		for range times {
			for i, w := range writers {
				commitTo(t, w, []order{{ID: int64(i)}})
			}
			mu.Lock()
			edits++
			for i := range seen {
				seen[i] = 0
			}
			rounds = 0
			mu.Unlock()
			time.Sleep(5 * time.Second)
			mu.Lock()
			if slices.ContainsFunc(seen, func(s int) bool { return s >= 0 }) {
				t.Errorf("after 5 s and %v rounds not all have seen edit %d of all logs", seen, edits)
			}
			worst = max(worst, rounds)
			mu.Unlock()
		}
		cancel()
		all.Wait()
		tries := float64(counted.Counts().Of(faultstore.Put, "_delta_log/")) / float64(versions)
		t.Attr("rounds", strconv.Itoa(worst))
		t.Attr("tries", strconv.FormatFloat(tries, 'g', -1, 64))
		t.Logf("%d times %d commits at once, %d versions: at most %d rounds, %.2f tries for a version", times, n, versions, worst, tries)
		if worst > most || tries > 2 {
			t.Errorf("%d rounds and %.2f tries for a version, want at most %d and 2", worst, tries, most)
		}
	})
}
