package iceberg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/iceberg"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// hooked is a store that asks before it writes below the table's folder.
type hooked struct {
	store.Store
	before func(key string) // may be nil
}

func (h *hooked) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if h.before != nil && strings.HasPrefix(key, "file/metadata/v") {
		h.before(key)
	}
	return h.Store.Put(ctx, key, body, opts)
}

// guard:table-read-after. Without this check: two formats share a read of the log; another publisher creates a version of Iceberg
// with a later edit; this one loads it and compares it with the older read; the log seems to have been restored from a backup.
func TestTwoPublishers(t *testing.T) {
	for seed := range uint64(6) {
		inLake(t, func(t *testing.T, k *lake) {
			var wait sync.WaitGroup
			stop := make(chan struct{})
			for n := range 2 {
				faulty := faultstore.New(k.Mem, &faultstore.Options{Clock: clock.Go(), Seed: seed*2 + uint64(n)})
				p := k.publisher(faulty, &delta.Options{Every: 20 * time.Millisecond})
				wait.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(n)))
					for {
						select {
						case <-stop:
							return
						default:
						}
						if r, err := p.Publish(context.Background()); err != nil || r.Err() != nil {
							t.Error(err, r.Err())
							return
						}
						time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
					}
				})
			}
			var keys []string
			for i := range 30 {
				if i%4 == 3 {
					keys = append(keys[2:], k.rows(2, keys[0], keys[1]))
				} else {
					keys = append(keys, k.rows(1))
				}
				time.Sleep(time.Duration(i%5) * 10 * time.Millisecond)
			}
			close(stop)
			wait.Wait()
			k.agree()
		})
	}
}

// agree checks that the newest versions have the log's files, and that both formats had the same files before.
func (k *lake) agree() {
	k.Helper()
	r := k.publish(k.publisher(nil, nil))
	e := k.engine()
	d, err := e.document(r.Also[0].Version)
	if err != nil {
		k.Fatal(err)
	}
	byEdits := k.deltaAt()
	for _, s := range d.Snapshots {
		got, err := e.files(d, s.ID)
		if err != nil {
			k.Error(err)
			continue
		}
		var edits uint64
		_, _ = fmt.Sscan(s.Summary["fencepost.edits"], &edits)
		if want, ok := byEdits[edits]; ok && !slices.Equal(got, want) {
			k.Errorf("after %d edits Iceberg has %v, and Delta %v", edits, got, want)
		}
	}
	got, err := e.files(d, d.Current)
	if want := k.live(); err != nil || !slices.Equal(got, want) {
		k.Errorf("Iceberg has %v, and the log %v; %v", got, want, err)
	}
}

// TestLostReplies: each answer to a conditional create is lost once: the version was created, it was not, or another publisher was quicker.
func TestLostReplies(t *testing.T) {
	for _, kind := range []string{"v", "0", "version-hint"} {
		for outcome := range 3 {
			inLake(t, func(t *testing.T, k *lake) {
				k.rows(1)
				lossy := &losing{Store: k.Mem}
				p := k.publisher(lossy, nil)
				k.publish(p)
				k.rows(2)
				lossy.lose, lossy.kind = outcome+1, "file/metadata/"+kind
				lossy.rival = func() { k.publish(k.publisher(nil, nil)) }
				time.Sleep(2 * time.Second)
				k.publish(p)
				if lossy.lose != 0 {
					t.Errorf("no write of %s was lost", kind)
				}
				k.agree()
			})
		}
	}
}

// losing loses the answer to one write.
type losing struct {
	store.Store
	kind  string
	lose  int // 1: it was applied; 2: it was not; 3: a rival was quicker
	rival func()
}

func (l *losing) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if l.lose == 0 || !strings.HasPrefix(key, l.kind) || opts == nil {
		return l.Store.Put(ctx, key, body, opts)
	}
	how := l.lose
	l.lose = 0
	lost := &store.Error{Op: "put", Key: key, Err: errors.New("the answer was lost")}
	switch how {
	case 1:
		_, _ = l.Store.Put(ctx, key, body, opts)
	case 3:
		l.rival()
		_, _ = l.Store.Put(ctx, key, body, opts)
	}
	return store.Info{}, lost
}

// guard:iceberg-hint-forward. Without this check: a publisher's cleanup moves the hint to an older version, which is deleted soon; engines that
// begin at the hint find nothing.
func TestZombie(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		p := k.publisher(nil, &delta.Options{Retention: time.Hour})
		k.publish(p)
		// A publisher sleeps for a month before it creates the next version.
		asleep := &hooked{Store: k.Mem}
		zombie := k.publisher(asleep, nil)
		k.publish(zombie)
		key := k.rows(1)
		asleep.before = func(string) {
			asleep.before = nil
			for range 30 {
				key = k.rows(1, key)
				k.publish(p)
				time.Sleep(24 * time.Hour)
				k.publish(p)
				k.compact()
			}
		}
		before := k.engine().newest()
		k.publish(zombie)
		names := k.keys()
		if !slices.Contains(names, fmt.Sprintf("v%d.metadata.json", 1_000_000_000+before+1)) {
			t.Errorf("the late version is not there: %v", names)
		}
		k.agree()
		// The next cleanup deletes it.
		time.Sleep(24 * time.Hour)
		k.rows(1)
		k.publish(p)
		if names := k.keys(); slices.Contains(names, fmt.Sprintf("v%d.metadata.json", 1_000_000_000+before+1)) || len(names) > 20 {
			t.Errorf("what is old is still there: %v", names)
		}
		k.agree()
		newest := fmt.Sprintf("file/metadata/v%d.metadata.json", 1_000_000_000+k.engine().newest())
		if err := k.Mem.Delete(context.Background(), newest); err != nil {
			t.Fatal(err)
		}
		k.rows(1)
		if _, err := k.publisher(nil, nil).Publish(context.Background()); !errors.Is(err, delta.ErrDamaged) || !strings.Contains(err.Error(), newest[len("file/"):]) {
			t.Errorf("the newest version is gone: %v", err)
		}
	})
}

// TestForeign: what another program writes is an error that names it.
//
// guard:iceberg-metadata-ours. Without this check: another program commits a version, and keeps the properties of the one before; a publisher
// takes it for its own; the rows that the other has removed or added are never looked at again.
//
// guard:iceberg-checksum. Without this check: a disk flips a bit of a manifest; a publisher rewrites that manifest, and gives the damage a checksum that
// fits.
func TestForeign(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		only := func() *delta.Publisher {
			return k.publisher(nil, &delta.Options{Formats: []delta.Format{iceberg.Format(location)}})
		}
		k.publish(only())
		n := k.engine().newest()
		key := func(v int64) string { return fmt.Sprintf("file/metadata/v%d.metadata.json", 1_000_000_000+v) }
		body, err := k.engine().body(key(n))
		if err != nil {
			t.Fatal(err)
		}
		next := strings.Replace(string(body), `"engine-name":"fencepost"`, `"engine-name":"another"`, 1)
		if _, err := k.Mem.Put(context.Background(), key(n+1), []byte(next), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := only().Publish(context.Background()); !errors.Is(err, delta.ErrForeign) || !strings.Contains(err.Error(), key(n + 1)[len("file/"):]) {
			t.Errorf("another program's version: %v", err)
		}
		if _, err := k.Mem.Put(context.Background(), key(n+1), body[:len(body)/2], nil); err != nil {
			t.Fatal(err)
		}
		if _, err := only().Publish(context.Background()); !errors.Is(err, delta.ErrDamaged) {
			t.Errorf("half a version: %v", err)
		}
		if err := k.Mem.Delete(context.Background(), key(n+1)); err != nil {
			t.Fatal(err)
		}
		for _, name := range k.keys() {
			if !strings.HasSuffix(name, ".avro") || strings.Contains(name, "list") {
				continue
			}
			old, _ := k.engine().body("file/metadata/" + name)
			bad := slices.Clone(old)
			bad[bytes.Index(bad, []byte("format-version"))] ^= 1 // which shows in nothing that is read
			if _, err := k.Mem.Put(context.Background(), "file/metadata/"+name, bad, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := only().Publish(context.Background()); !errors.Is(err, delta.ErrDamaged) || !strings.Contains(err.Error(), name) {
				t.Errorf("a damaged manifest: %v", err)
			}
			if _, err := k.Mem.Put(context.Background(), "file/metadata/"+name, old, nil); err != nil {
				t.Fatal(err)
			}
		}
		k.publish(only())
	})
}

// TestReplacedVersion: somebody has deleted the newest version and the hint, and another publisher has created that number again.
func TestReplacedVersion(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		p, other := k.publisher(nil, nil), k.publisher(nil, nil)
		k.publish(p)
		k.publish(other)
		k.rows(1)
		k.publish(p)
		key := fmt.Sprintf("file/metadata/v%d.metadata.json", 1_000_000_000+k.engine().newest())
		if err := k.Mem.Delete(context.Background(), key); err != nil {
			t.Fatal(err)
		}
		only := k.publisher(nil, &delta.Options{Formats: []delta.Format{iceberg.Format(location)}})
		_ = k.Mem.Delete(context.Background(), "file/metadata/version-hint.text")
		k.publish(only)
		k.rows(1)
		k.publish(p)
		k.agree()
	})
}

// guard:iceberg-files-first. Without this check: a publisher dies, or its request fails, between the metadata and the manifest; engines find a version whose
// files nobody can name.
func TestManifestThatCannotBeWritten(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		k.rows(1)
		k.publish(k.publisher(nil, nil))
		before := k.engine().newest()
		k.rows(1)
		for _, part := range []string{"-list-", ".avro"} {
			if _, err := k.publisher(&refusing{k.Mem, part}, nil).Publish(context.Background()); err == nil || k.engine().newest() != before {
				t.Errorf("version %d, %v", k.engine().newest(), err)
			}
		}
		k.agree()
	})
}

// refusing turns away writes of some objects of the table.
type refusing struct {
	store.Store
	part string
}

func (r *refusing) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if strings.HasPrefix(key, "file/metadata/") && strings.Contains(key, r.part) {
		return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrDenied, Err: errors.New("no right")}
	}
	return r.Store.Put(ctx, key, body, opts)
}
