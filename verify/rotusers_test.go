package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
)

// This file has those who use the damaged logs of TestRot besides readers, writers and
// compactors of records: snapshots of files, followers of the table, consumers; and
// a second store for files.

// rowsOf is the content of each file of a rotten log.
const rowsOf = "rows"

// contents reads each live file to its end, and returns the rows of all.
func contents(st, files store.Store) (keys []string, rows []byte, err error) {
	ctx := context.Background()
	rd, err := reader.Open(ctx, st, &reader.Options{Files: files, Settle: logtest.Quick})
	if err != nil {
		return nil, nil, err
	}
	s, err := rd.Snapshot(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	for f, err := range s.Files(ctx) {
		if err != nil {
			return nil, nil, err
		}
		data, err := s.Open(ctx, f)
		if err != nil {
			return nil, nil, err
		}
		body, err := io.ReadAll(data)
		if err != nil {
			return nil, nil, err
		}
		keys, rows = append(keys, f.Key), append(rows, body...)
	}
	return keys, rows, nil
}

// checkFiles reads the files of a snapshot, and follows the table: an error or what is right.
func (r *rotten) checkFiles(t *testing.T, h harm) {
	l := r.Fork(t, nil)
	h.to(l)
	keys, rows, err := contents(l.Mem, nil)
	if err == nil && (!slices.Equal(keys, r.live) || !bytes.Equal(rows, bytes.Repeat([]byte(rowsOf), len(r.live)))) {
		t.Errorf("%v: the files %q have %q", h, keys, rows)
	}
	rd, err := reader.Open(t.Context(), l.Mem, &reader.Options{Settle: logtest.Quick})
	if err != nil {
		return
	}
	table := rd.Table()
	if _, err := table.Read(t.Context()); err != nil {
		return
	}
	keys = nil
	for f, err := range table.Files(t.Context()) {
		if err != nil {
			return
		}
		keys = append(keys, f.Key)
	}
	if !slices.Equal(keys, r.live) {
		t.Errorf("%v: the table has %q, want %q", h, keys, r.live)
	}
}

// checkConsumer opens the position of a consumer and moves it: an error, or the position that
// was committed last. It is 0 only if the object is gone.
func (r *rotten) checkConsumer(t *testing.T, h harm) {
	l := r.Fork(t, nil)
	h.to(l)
	open := func() (next uint64, known bool, c *reader.Consumer, err error) {
		rd, err := reader.Open(t.Context(), l.Mem, &reader.Options{Settle: logtest.Quick})
		if err == nil {
			c, err = rd.TakeConsumer(t.Context(), consumer)
		}
		if err != nil {
			return 0, false, nil, err
		}
		next, known = c.Next()
		return next, known, c, nil
	}
	next, known, c, err := open()
	if err != nil {
		return
	}
	if lost := h.body == nil && h.key == layout.ConsumerPrefix+consumer+".json"; known == lost || known && next != consumed {
		t.Errorf("%v: the consumer goes on at %d, %t", h, next, known)
	}
	if c.Commit(t.Context(), consumed+1) == nil {
		if next, known, _, err := open(); err != nil || !known || next != consumed+1 {
			t.Errorf("%v: committed was %d, and it is %d, %t, %v", h, consumed+1, next, known, err)
		}
	}
}

// TestRotApart is TestRot for a second store: each damage to a live file or to the mark is found by
// verify, and nobody takes what is damaged for right. A compactor deletes no live file.
func TestRotApart(t *testing.T) {
	const row = len("rows of ") + len("file/00000000000000000001/") + 36 + len(".parquet")
	second := memstore.New(&memstore.Options{Clock: clock.Go(), Name: "mem://lake"})
	a := newApart(t, "a", second)
	w := a.open()
	live := a.files(w, 3)
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: live}); err != nil {
		t.Fatal(err)
	}
	a.Close(w)
	a.compact()
	a.lead(t)
	body := func(key string) []byte {
		b, _, err := store.Read(t.Context(), second, key, &store.ReadOptions{Limit: 1 << 20, Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	objects := []string{"_fencepost/" + layout.MarkKey(a.Format.Log)}
	for _, f := range live {
		objects = append(objects, a.Format.FileName(f.Key))
	}
	n, mark := 0, len(body(objects[0]))
	for _, key := range objects {
		whole := body(key)
		try := func(what string, damaged []byte) {
			n++
			h := harm{key, what, damaged}
			if damaged == nil {
				if err := second.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			} else {
				fixture.Put(t, second, key, damaged)
			}
			if rep, err := verify.Run(t.Context(), a.Mem, &verify.Options{Files: second, Settle: logtest.Quick}); err == nil && rep.OK() {
				t.Errorf("verify finds nothing: %v", h)
			}
			_, rows, err := contents(a.Mem, second)
			if key != objects[0] && err == nil || key == objects[0] && (err != nil || len(rows) != len(live)*row) {
				t.Errorf("%v: rows %q, %v", h, rows, err)
			}
			if n%*users == 0 || damaged == nil {
				_, _ = compactorOf(a.Log, compactor.Options{Files: second}).Once(t.Context())
				for i, f := range live {
					if objects[i+1] != key && !a.has(f.Key) {
						t.Errorf("%v: a compactor has deleted %s", h, f.Key)
					}
				}
			}
			fixture.Put(t, second, key, whole)
		}
		try("removed", nil)
		for at := range whole {
			if at%7 == 0 || *every == 1 {
				try(fmt.Sprintf("cut to %d of %d bytes", at, len(whole)), whole[:at:at])
			}
			for bit := range 8 {
				if bit == at%8 || *every == 1 {
					b := bytes.Clone(whole)
					b[at] ^= 1 << bit
					try(fmt.Sprintf("with bit %d of byte %d flipped", bit, at), b)
				}
			}
		}
	}
	if r := a.verify(); !r.OK() || r.Files != len(live) {
		t.Errorf("restored: %v", r.Problems)
	}
	t.Logf("%d kinds of damage, the mark has %d bytes", n, mark)
}

const (
	consumer = "exports"
	consumed = 5
)

// consume commits the position of a consumer.
func consume(t *testing.T, l *logtest.Log) {
	t.Helper()
	rd, err := reader.Open(t.Context(), l.Mem, &reader.Options{Settle: logtest.Quick})
	var c *reader.Consumer
	if err == nil {
		c, err = rd.Consumer(t.Context(), consumer, fence.NewToken(3))
	}
	if err == nil {
		err = c.Commit(t.Context(), consumed)
	}
	if err != nil {
		t.Fatal(err)
	}
}
