package rewrite_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/writer"
)

// at is a function of an application that reads its files in pieces, from the last byte to the first.
func at(_ context.Context, out io.Writer, in []rewrite.Input) (records uint64, meta map[string]string, err error) {
	for _, f := range in {
		body := make([]byte, f.Size)
		for i := len(body) - 1; i >= 0; i-- {
			if _, err := f.Data.ReadAt(body[i:i+1], int64(i)); err != nil {
				return 0, nil, err
			}
		}
		if _, err := out.Write(body); err != nil {
			return 0, nil, err
		}
		records += f.Records
	}
	return records, nil, nil
}

// TestRot damages a table in each way that one disk can: an object removed, cut at a byte, or with one flipped bit in a byte. A leader then
// opens the log and merges its files. It ends with an error, or the table has the same rows. Either way, nothing that is
// sound is lost: with the object as it was, the table has the same rows.
func TestRot(t *testing.T) {
	const rows = 9
	base := newLines(t)
	base.add(4, 0)
	if done, err := base.rewriter(nil, &rewrite.Options{MinFiles: 4}).Once(t.Context()); err != nil || len(done) != 1 {
		t.Fatalf("%v, %v", done, err)
	}
	base.add(rows-4, 4)
	base.Close(base.w)
	base.want(rows)
	tried, failed, merged := 0, map[string]int{}, 0
	try := func(key, what string, damage func(body []byte) []byte) {
		t.Helper()
		tried++
		l := base.Fork(t, nil)
		sound := l.Body(key)
		if body := damage(bytes.Clone(sound)); body != nil {
			l.Put(key, body)
		} else {
			l.Remove(key)
		}
		f := []rewrite.Func{concat, at}[tried%2]
		done, err := merge(t.Context(), l, f)
		if err != nil {
			kind, _, _ := strings.Cut(key, "/")
			failed[kind]++
		}
		merged += len(done)
		table := &lines{Log: l}
		if table.r, err = reader.Open(t.Context(), l.Mem, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()}); err == nil {
			if got, _, err := table.rows(t.Context()); err == nil && !slices.Equal(got, upTo(rows)) {
				t.Errorf("%s, %s: the rows are %v after %d rewrites", key, what, got, len(done))
			}
		}
		l.Put(key, sound)
		if table.r, err = reader.Open(t.Context(), l.Mem, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := table.rows(t.Context()); err != nil || !slices.Equal(got, upTo(rows)) {
			t.Errorf("%s, %s, and as it was again: the rows are %v after %d rewrites: %v", key, what, got, len(done), err)
		}
	}
	every := test.Of(23, 1)
	n := 0
	for key, body := range base.Objects() {
		// Whoever removes the last object of a log, or makes it empty, has another log, which nobody can tell from the first.
		if file := strings.HasPrefix(key, "file/"); file || strings.HasPrefix(key, "manifest/") {
			try(key, "removed", func([]byte) []byte { return nil })
		}
		for i := range body {
			if n++; n%every != 0 && !strings.HasPrefix(key, "file/") {
				continue
			}
			for bit := range 8 {
				if (i+bit)%test.Of(4, 1) == 0 {
					try(key, "a flipped bit", func(b []byte) []byte { b[i] ^= 1 << bit; return b })
				}
			}
			try(key, "cut", func(b []byte) []byte { return b[:i] })
		}
	}
	t.Logf("%d kinds of damage: %d rewrites, errors %v", tried, merged, failed)
	if failed["file"] == 0 || failed["data"] == 0 || merged == 0 {
		t.Error("this shows nothing")
	}
}

// merge is a leader that opens a log and merges its files.
func merge(ctx context.Context, l *logtest.Log, f rewrite.Func) ([]rewrite.Rewrite, error) {
	w, err := writer.Open(ctx, l.Mem, fence.NewToken(l.Epoch+1), &writer.Options{Settle: logtest.Quick, NoCompress: true, Clock: clock.Go()})
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Close(ctx) }()
	r, err := reader.Open(ctx, l.Mem, &reader.Options{Settle: logtest.Quick, Clock: clock.Go()})
	if err != nil {
		return nil, err
	}
	m, err := rewrite.New(w, r, f, &rewrite.Options{MinFiles: 4})
	if err != nil {
		return nil, err
	}
	return m.Once(ctx)
}
