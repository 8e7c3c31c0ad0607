package runtest_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// reasons are why a store does not do what it is asked for.
var reasons = map[string]error{
	"disk full": &store.Error{Op: "put", Err: syscall.ENOSPC},
	"503":       &store.Error{Op: "put", Status: 503, Hint: "slow down"},
	"403":       &store.Error{Op: "put", Status: 403, Kind: store.ErrDenied},
	"DNS":       &store.Error{Op: "put", Err: &net.DNSError{Err: "no such host", Name: "bucket.example", IsNotFound: true}},
	"TLS":       &store.Error{Op: "put", Err: x509.UnknownAuthorityError{}},
}

// user is somebody who works with a store until ctx ends.
type user struct {
	do func(ctx context.Context, st store.Store, logger *zap.Logger) error
	// warns says that it logs while the store fails. It has a logger then.
	warns bool
	// prepare is called while the store works still; do is what it returns then.
	prepare func(ctx context.Context, st store.Store) (func(context.Context) error, error)
}

func users() map[string]user {
	read := func(ctx context.Context, r *reader.Reader) (err error) {
		for _, err = range r.Read(ctx, 0) {
		}
		return err
	}
	settle := &store.SettleOptions{Clock: clock.Go()}
	return map[string]user{
		"a reader": {prepare: func(ctx context.Context, st store.Store) (func(context.Context) error, error) {
			r, err := reader.Open(ctx, st, &reader.Options{Clock: clock.Go(), Settle: settle})
			return func(ctx context.Context) error { return read(ctx, r) }, err
		}},
		"a reader that opens": {do: func(ctx context.Context, st store.Store, _ *zap.Logger) error {
			_, err := reader.Open(ctx, st, &reader.Options{Clock: clock.Go(), Settle: settle})
			return err
		}},
		"a snapshot": {prepare: func(ctx context.Context, st store.Store) (func(context.Context) error, error) {
			r, err := reader.Open(ctx, st, &reader.Options{Clock: clock.Go(), Settle: settle})
			return func(ctx context.Context) error {
				_, err := r.Snapshot(ctx, nil)
				return err
			}, err
		}},
		"a consumer": {prepare: func(ctx context.Context, st store.Store) (func(context.Context) error, error) {
			r, err := reader.Open(ctx, st, &reader.Options{Clock: clock.Go(), Settle: settle})
			if err != nil {
				return nil, err
			}
			c, err := r.TakeConsumer(ctx, "exports")
			return func(ctx context.Context) error { return c.Commit(ctx, 1) }, err
		}},
		"a register": {prepare: func(ctx context.Context, st store.Store) (func(context.Context) error, error) {
			r, err := register.Take(ctx, st, "latest.json", &register.Options{Clock: clock.Go(), Settle: settle})
			return func(ctx context.Context) error { return r.Set(ctx, []byte("x")) }, err
		}},
		"a writer that opens": {do: func(ctx context.Context, st store.Store, _ *zap.Logger) error {
			_, err := writer.Open(ctx, st, fence.NewToken(5), &writer.Options{Clock: clock.Go(), Settle: settle})
			return err
		}},
		"a compactor": {do: func(ctx context.Context, st store.Store, _ *zap.Logger) error {
			c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(7), Clock: clock.Go(), Settle: settle})
			if err == nil {
				_, err = c.Once(ctx)
			}
			return err
		}},
		"a compactor that runs": {warns: true, do: func(ctx context.Context, st store.Store, logger *zap.Logger) error {
			c, err := compactor.New(st, &compactor.Options{Clock: clock.Go(), Settle: settle, Logger: logger})
			if err == nil {
				err = c.Run(ctx)
			}
			return err
		}},
		"a candidate": {warns: true, do: func(ctx context.Context, st store.Store, logger *zap.Logger) error {
			e, err := leader.New(st, layout.KindLock, &leader.Options{Clock: clock.Go(), Logger: logger})
			if err == nil {
				_, err = e.Campaign(ctx)
			}
			return err
		}},
		"Run": {warns: true, do: func(ctx context.Context, st store.Store, logger *zap.Logger) error {
			return fencepost.Run(ctx, st, &fencepost.Options{Logger: logger, Leader: &leader.Options{Clock: clock.Go()}}, func(context.Context, *fencepost.Session) error { return nil })
		}},
		"verify": {do: func(ctx context.Context, st store.Store, _ *zap.Logger) error {
			_, err := verify.Run(ctx, st, &verify.Options{Settle: settle})
			return err
		}},
		"init": {do: func(ctx context.Context, st store.Store, _ *zap.Logger) error {
			_, err := manifest.Init(ctx, st, &manifest.InitOptions{Settle: settle})
			return err
		}},
	}
}

// TestWhyNothingWorks: whoever stops waiting for a store learns what the store says, from the
// error; and so does the log of those that have one, while it lasts.
func TestWhyNothingWorks(t *testing.T) {
	for name, u := range users() {
		for why, reason := range reasons {
			t.Run(name+", "+why, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { u.meets(t, reason) })
			})
		}
	}
}

func (u user) meets(t *testing.T, reason error) {
	l := logtest.New(t, logtest.Format(), nil)
	l.Lead(2)
	core, logs := observer.New(zapcore.WarnLevel)
	faulty := faultstore.New(l.Mem, &faultstore.Options{Clock: clock.Go()})
	do := func(ctx context.Context) error { return u.do(ctx, faulty, zap.New(core)) }
	var err error
	if u.prepare != nil {
		do, err = u.prepare(t.Context(), faulty)
		check(t, err)
	}
	faulty.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true, Err: reason}}))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err = do(ctx); !errors.Is(err, reason) {
		t.Errorf("the error is %v", err)
	}
	if denied := errors.Is(reason, store.ErrDenied); u.warns && !denied && logs.Len() == 0 {
		t.Error("nothing is logged")
	}
}

// A writer whose opening hangs says so. (One that is refused returns the error after seconds.)
func TestOpeningSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := logtest.New(t, logtest.Format(), nil)
		l.Lead(2)
		core, logs := observer.New(zapcore.WarnLevel)
		faulty := faultstore.New(l.Mem, &faultstore.Options{Clock: clock.Go()})
		faulty.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true, Hang: true}}))
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		_, err := writer.Open(ctx, faulty, fence.NewToken(5), &writer.Options{Clock: clock.Go(), Settle: &store.SettleOptions{Clock: clock.Go()}, Logger: zap.New(core)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		if logs.Len() == 0 {
			t.Error("nothing is logged")
		}
	})
}
