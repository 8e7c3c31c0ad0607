package promhooks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/verify"
)

// A run that ends is counted: a sound log, a damaged one, and a run that could not read.
func TestVerified(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
		m, reg := newMetrics(t, &promhooks.Options{Clock: clock.Go()})
		w := l.Open(nil)
		if _, err := w.Append(t.Context(), [][]byte{[]byte("one")}); err != nil {
			t.Fatal(err)
		}
		l.Close(w)
		told := 0
		hooks := m.Verifier(verify.Hooks{Verified: func(verify.Verified) { told++ }})
		run := func() { _, _ = verify.Run(t.Context(), l.Mem, &verify.Options{Hooks: hooks}) }
		run()
		want(t, reg, 1, "fencepost_verify_runs_total", "ok")
		want(t, reg, 0, "fencepost_verify_problems")
		want(t, reg, float64(time.Now().UnixMilli())/1000, "fencepost_verify_ended_timestamp_seconds")
		if value(t, reg, "fencepost_verify_read_bytes_total") == 0 {
			t.Error("no bytes were read")
		}
		if _, err := l.Mem.Put(t.Context(), "manifest/00000000000000000001.json", []byte("rot"), nil); err != nil {
			t.Fatal(err)
		}
		run()
		want(t, reg, 1, "fencepost_verify_runs_total", "damaged")
		want(t, reg, 1, "fencepost_verify_problems")
		hooks.Verified(verify.Verified{Report: &verify.Report{}, Err: errors.New("the store is away")})
		hooks.Verified(verify.Verified{Report: &verify.Report{}, Err: fmt.Errorf("verify: %w", context.Canceled)}) // is no failure
		want(t, reg, 1, "fencepost_verify_runs_total", "error")
		want(t, reg, 1, "fencepost_verify_problems")
		hooks.Verified(verify.Verified{Report: &verify.Report{Problems: []verify.Finding{{Repaired: true}}, MoreNotes: 2}})
		want(t, reg, 2, "fencepost_verify_runs_total", "ok")
		want(t, reg, 0, "fencepost_verify_problems")
		want(t, reg, 2, "fencepost_verify_notes")
		if told != 5 {
			t.Errorf("the caller's own hook was told %d runs, not 5", told)
		}
	})
}

func TestRewriter(t *testing.T) {
	m, reg := newMetrics(t, nil)
	told := 0
	h := m.Rewriter(rewrite.Hooks{Rewritten: func(rewrite.Rewrite) { told++ }, Passed: func(rewrite.Pass) { told++ }})
	h.Passed(rewrite.Pass{Took: time.Second})
	h.Passed(rewrite.Pass{Err: errors.New("the function fails")})
	h.Passed(rewrite.Pass{Err: context.Canceled})
	want(t, reg, 1, "fencepost_rewrite_pass_seconds", "ok")
	want(t, reg, 1, "fencepost_rewrite_pass_seconds", "error")
	h.Rewritten(rewrite.Rewrite{File: manifest.File{Size: 25}, Replaced: []manifest.File{{Size: 10}, {Size: 20}}})
	h.Rewritten(rewrite.Rewrite{File: manifest.File{Size: 5}, Replaced: []manifest.File{{Size: 7}}})
	for name, v := range map[string]float64{
		"fencepost_rewrite_rewrites_total": 2, "fencepost_rewrite_replaced_files_total": 3,
		"fencepost_rewrite_replaced_bytes_total": 37, "fencepost_rewrite_written_bytes_total": 30,
	} {
		want(t, reg, v, name)
	}
	if told != 5 {
		t.Errorf("the caller's own hooks were told %d times, not 5", told)
	}
}
