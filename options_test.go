package fencepost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// What tunes retries is checked wherever it can be given, before any request.
func TestRetriesAreValidated(t *testing.T) {
	bad := &store.SettleOptions{Reads: -1}
	for name, tt := range map[string]struct{ err, want error }{
		"manifest":  {(&manifest.InitOptions{Settle: bad}).Validate(), manifest.ErrOptions},
		"writer":    {(&writer.Options{Settle: bad}).Validate(), writer.ErrOptions},
		"reader":    {(&reader.Options{Settle: bad}).Validate(), reader.ErrOptions},
		"compactor": {(&compactor.Options{Settle: bad}).Validate(), compactor.ErrOptions},
		"verify":    {(&verify.Options{Settle: bad}).Validate(), verify.ErrOptions},
	} {
		if !errors.Is(tt.err, tt.want) || !strings.Contains(tt.err.Error(), "Reads is -1") {
			t.Errorf("%s: %v", name, tt.err)
		}
	}
}

// Run reports all faults at once, each with the path to its field.
func TestRunReportsAllFaults(t *testing.T) {
	err := fencepost.Run(t.Context(), nil, &fencepost.Options{Leader: &leader.Options{Validity: 1, StallAfter: -1}}, nil)
	if !errors.Is(err, fencepost.ErrOptions) || !errors.Is(err, leader.ErrOptions) {
		t.Fatal(err)
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{"Leader: leader: invalid options: Validity 1ns", "Leader: leader: invalid options: StallAfter", "work is nil", "store is nil"} {
		if len(lines) != 4 || !strings.HasPrefix(lines[i], "fencepost: invalid options: ") || !strings.Contains(lines[i], want) {
			t.Errorf("%q does not say %q, or is not one of four lines", lines, want)
		}
	}
}

// A program that logs with slog sets Slog, and sees who leads. It cannot set both.
func TestSlog(t *testing.T) {
	var out bytes.Buffer
	st := memstore.New(nil)
	o := &fencepost.Options{Slog: slog.New(slog.NewTextHandler(&out, nil)), Writer: &writer.Options{Init: &manifest.InitOptions{Probed: fixture.Probed(time.Now())}}}
	if err := fencepost.Run(t.Context(), st, o, func(context.Context, *fencepost.Session) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "elected") || !strings.Contains(s, "logger=leader") {
		t.Errorf("the log says %q", s)
	}
	o.Logger = zap.NewNop()
	if err := o.Validate(); !errors.Is(err, fencepost.ErrOptions) || !strings.Contains(err.Error(), "Slog: it goes without Logger") {
		t.Errorf("%v", err)
	}
}

// Whoever is given no store says so at once, and starts nothing: also if it is a nil pointer,
// which is what a constructor returns beside an error that somebody has ignored.
func TestNoStore(t *testing.T) {
	ctx, token := t.Context(), fence.NewToken(1)
	for what, st := range map[string]store.Store{"nil": nil, "a nil pointer": (*memstore.Store)(nil)} {
		for name, call := range map[string]func() error{
			"Run": func() error {
				return fencepost.Run(ctx, st, nil, func(context.Context, *fencepost.Session) error { return nil })
			},
			"leader":    func() error { _, err := leader.New(st, "lock", nil); return err },
			"writer":    func() error { _, err := writer.Open(ctx, st, token, nil); return err },
			"reader":    func() error { _, err := reader.Open(ctx, st, nil); return err },
			"compactor": func() error { _, err := compactor.New(st, nil); return err },
			"verify":    func() error { _, err := verify.Run(ctx, st, nil); return err },
			"rules":     func() error { _, err := verify.Rules(ctx, st, nil); return err },
			"init":      func() error { _, err := manifest.Init(ctx, st, nil); return err },
			"format":    func() error { _, err := manifest.ReadFormat(ctx, st, nil); return err },
			"sub":       func() error { _, err := store.Sub(st, "x"); return err },
			"probe":     func() error { _, err := probe.Run(ctx, st, nil); return err },
			"register":  func() error { _, err := register.Open(ctx, st, "x", token, nil); return err },
			"take":      func() error { _, err := register.Take(ctx, st, "x", nil); return err },
			"read":      func() error { _, err := register.Read(ctx, st, "x", nil); return err },
			"reach":     func() error { return contact.Reach(ctx, st, "x", nil) },
		} {
			if err := panicless(call); err == nil || !strings.Contains(err.Error(), "the store is nil") {
				t.Errorf("%s with %s: %v", name, what, err)
			}
		}
	}
}

// panicless calls f, and returns a panic as an error.
func panicless(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// TestGreatestNumbers: an option that is the greatest number of its type is refused, or it means
// what a large number means. No sum or product of it is negative.
func TestGreatestNumbers(t *testing.T) {
	const most, longest = math.MaxInt64, time.Duration(math.MaxInt64)
	whole := longest.Truncate(time.Millisecond)
	for name, v := range map[string]interface{ Validate() error }{
		"leader RequestTimeout": &leader.Options{RequestTimeout: longest}, "leader Renew": &leader.Options{Renew: whole},
	} {
		if err := v.Validate(); err == nil || strings.Contains(err.Error(), "-") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now := clock.Instant(time.Hour); now.Add(longest) < now || now.Add(-time.Minute) >= now || now.Add(time.Minute).Sub(now) != time.Minute {
		t.Error("an instant in 300 years comes before now")
	}
}
