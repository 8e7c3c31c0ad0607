package writer_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// reasons are why a store may not take a write, for a while or for good.
var reasons = map[string]error{
	"disk full": &store.Error{Op: "put", Err: syscall.ENOSPC},
	"503":       &store.Error{Op: "put", Status: 503, Hint: "slow down"},
	"DNS":       &store.Error{Op: "put", Err: &net.DNSError{Err: "no such host", Name: "bucket.example", IsNotFound: true}},
	"TLS":       &store.Error{Op: "put", Err: x509.UnknownAuthorityError{}},
}

// TestWhyItCannotWrite: with each of them, whoever stops waiting learns what the store says:
// from Append, from Flush, from an Append that waits for room and from Close; and so does
// the log, again and again while it lasts.
func TestWhyItCannotWrite(t *testing.T) {
	for name, reason := range reasons {
		if !test.Whole() && name != "503" && name != "DNS" { // an answer, and none
			continue
		}
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			core, logs := observer.New(zapcore.InfoLevel)
			w := e.open("a", 1, &writer.Options{Logger: zap.New(core), Concurrency: 1, Window: 1, BatchBytes: 64})
			var failing atomic.Bool
			failing.Store(true)
			e.mu.Lock()
			e.hooks = append(e.hooks, func(op faultstore.Op) (f faultstore.Fault) {
				if failing.Load() && op.Client == "a" && op.Kind == faultstore.Put {
					f = faultstore.Fault{Drop: true, Err: reason}
				}
				return f
			})
			e.mu.Unlock()
			says := func(what string, err, is error) {
				t.Helper()
				if !errors.Is(err, is) || !errors.Is(err, reason) {
					t.Errorf("%s: %v", what, err)
				}
			}
			within := func(d time.Duration) context.Context {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				t.Cleanup(cancel)
				return ctx
			}
			_, err := w.Append(within(20*time.Second), [][]byte{[]byte("0")})
			says("Append", err, writer.ErrUnknown)
			says("Append", err, context.DeadlineExceeded)
			says("Flush", w.Flush(within(time.Second)), writer.ErrUnknown)
			_, err = w.AppendAsync(t.Context(), [][]byte{[]byte("1")})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.AppendAsync(within(time.Second), [][]byte{make([]byte, 64)})
			says("AppendAsync without room", err, writer.ErrNotCommitted)
			time.Sleep(3 * time.Minute)
			if n := logs.FilterLevelExact(zapcore.WarnLevel).FilterMessageSnippet("nothing is appended").Len(); n < 3 || n > 5 {
				t.Errorf("%d warnings in three minutes", n)
			}
			if w.Err() != nil {
				t.Errorf("Err: %v", w.Err())
			}
			failing.Store(false)
			if err := w.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			if n := logs.FilterMessageSnippet("works again").Len(); n != 1 {
				t.Errorf("it works again %d times", n)
			}
			failing.Store(true)
			if _, err = w.AppendAsync(t.Context(), [][]byte{[]byte("2")}); err != nil {
				t.Fatal(err)
			}
			says("Close", w.Close(within(20*time.Second)), writer.ErrUnknown)
		}))
	}
}

// TestWhyItCannotWriteAnyMore: the store turns a write away after it has failed for a while.
func TestWhyItCannotWriteAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		until, end := context.WithCancelCause(context.Background())
		defer end(nil)
		w := e.open("a", 1, &writer.Options{})
		w.Until(until)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataPrefix, Times: 3, Fault: faultstore.Fault{Drop: true}})
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataPrefix, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		_, err := w.Append(t.Context(), [][]byte{[]byte("0")})
		for what, err := range map[string]error{"Append": err, "Err": w.Err(), "Flush": w.Flush(t.Context())} {
			if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), layout.DataPrefix) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestWhyTheTermEnded: the term of a leader that cannot write ends, and its writer says why.
func TestWhyTheTermEnded(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		until, end := context.WithCancelCause(context.Background())
		w := e.open("a", 1, &writer.Options{})
		w.Until(until)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataPrefix, Times: -1, Fault: faultstore.Fault{Drop: true}})
		f := e.async(w, "0")
		time.Sleep(15 * time.Second)
		over := errors.New("the term is over")
		end(over)
		<-w.Done()
		_, err := f.Wait(t.Context())
		for what, err := range map[string]error{"Append": err, "Err": w.Err()} {
			var last *store.Error
			if !errors.Is(err, over) || !errors.As(err, &last) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
