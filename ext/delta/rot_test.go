package delta_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// published is what engines see: the paths of the newest version, and what it tells of each
// file.
func (k *lake) published() (paths []string, stats map[string]string) {
	stats = map[string]string{}
	version := int64(-1)
	for _, key := range k.Keys("file/_delta_log/") {
		var v int64
		if _, err := fmt.Sscanf(key, "file/_delta_log/%020d.json", &v); err == nil {
			version = max(version, v)
		}
	}
	for v := range version + 1 {
		for _, add := range k.actions(v, "add") {
			stats[fmt.Sprint(add["path"])] = fmt.Sprint(add["stats"])
		}
	}
	if version < 0 {
		return nil, stats
	}
	return k.version(version).paths(), stats
}

// TestRotOfTheSource: a publisher meets a log in which an object is gone, cut or has a flipped bit.
// It says so, or what it publishes is right.
func TestRotOfTheSource(t *testing.T) {
	var whole map[string][]byte
	var live []string
	stats := map[string]string{}
	inLake(t, func(t *testing.T, k *lake) {
		first := k.rows(3)
		k.rows(2)
		time.Sleep(time.Minute)
		k.compact()
		k.rows(1, first)
		k.rows(4)
		k.Close(k.w)
		whole, live = k.Objects(), k.live()
		k.publish(k.publisher(nil, nil))
		paths, all := k.published()
		if !slices.Equal(paths, live) {
			t.Fatalf("published are %q, live are %q", paths, live)
		}
		stats = all
		k.w = k.Open(nil) // it is closed again
	})
	n, refused := 0, 0
	try := func(key, what string, damaged []byte) {
		logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
			for k, body := range whole {
				if k != key {
					l.Put(k, body)
				}
			}
			if l.Remove(key); damaged != nil {
				l.Put(key, damaged)
			}
			n++
			k := &lake{Log: l}
			root, src, err := delta.Beside(l.Mem)
			if err != nil {
				t.Fatal(err)
			}
			p, err := delta.Open(context.Background(), root, []delta.Source{src}, &delta.Options{Settle: logtest.Quick})
			if err == nil {
				var r delta.Report
				r, err = p.Publish(context.Background())
				err = errors.Join(err, r.Err())
			}
			paths, told := k.published()
			if err == nil && !slices.Equal(paths, live) {
				t.Errorf("%s %s: published are %q, live are %q", key, what, paths, live)
			}
			if err != nil {
				refused++
			}
			for path, s := range told {
				if want, known := stats[path]; known && s != want {
					t.Errorf("%s %s: of %s is told %s, want %s", key, what, path, s, want)
				}
			}
		})
	}
	at := 0
	for _, key := range slices.Sorted(maps.Keys(whole)) {
		body := whole[key]
		each := 701
		if layout.KindOf(key) == layout.KindFile {
			each = 67
		}
		try(key, "removed", nil)
		try(key, "cut in half", body[:len(body)/2:len(body)/2])
		for bit := range 8 * len(body) {
			if at++; at%each == 0 {
				b := bytes.Clone(body)
				b[bit/8] ^= 1 << (bit % 8)
				try(key, fmt.Sprintf("with bit %d of byte %d flipped", bit%8, bit/8), b)
			}
		}
	}
	if t.Logf("%d kinds of damage, %d were refused", n, refused); refused == 0 {
		t.Error("nothing was refused")
	}
}

// TestWhyNothingIsPublished: whoever stops waiting for a store learns what it says.
func TestWhyNothingIsPublished(t *testing.T) {
	for name, reason := range map[string]error{
		"disk full": &store.Error{Op: "put", Err: syscall.ENOSPC},
		"503":       &store.Error{Op: "put", Status: 503},
		"403":       &store.Error{Op: "put", Status: 403, Kind: store.ErrDenied},
		"DNS":       &store.Error{Op: "put", Err: &net.DNSError{Err: "no such host", Name: "bucket.example"}},
		"TLS":       &store.Error{Op: "put", Err: x509.UnknownAuthorityError{}},
	} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				k.rows(1)
				var failed error
				for what, do := range map[string]func(context.Context, *delta.Publisher) error{
					"Publish": func(ctx context.Context, p *delta.Publisher) error {
						r, err := p.Publish(ctx)
						return errors.Join(err, r.Err())
					},
					"Run": func(ctx context.Context, p *delta.Publisher) error { return errors.Join(p.Run(ctx), failed) },
				} {
					for _, kind := range []faultstore.Kind{faultstore.Put, faultstore.Get, faultstore.List} {
						failed = nil
						k.Faulty.SetHook(nil)
						p := k.publisher(k.Faulty, &delta.Options{Settle: &store.SettleOptions{Clock: clock.Go()}, Hooks: delta.Hooks{Failed: func(err error) { failed = err }}})
						k.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: kind, Times: -1, Fault: faultstore.Fault{Drop: true, Err: reason}}))
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						if err := do(ctx, p); !errors.Is(err, reason) {
							t.Errorf("%s without %s: %v", what, kind, err)
						}
						cancel()
					}
				}
			})
		})
	}
}
