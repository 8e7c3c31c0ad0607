package writer_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store"
	"github.com/fencepost/fencepost/writer"
)

// quickly makes a log on a store that is known to keep its promises.
var quickly = &manifest.InitOptions{Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}}

// endpoint is an S3 endpoint in this process with a log on it.
func endpoint(t *testing.T) (*s3stub.Server, store.Store) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "AK")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SK")
	srv := s3stub.Start(nil)
	t.Cleanup(srv.Close)
	st, err := store.Open(t.Context(), srv.StoreURL())
	if err != nil {
		t.Fatal(err)
	}
	return srv, st
}

// rounds holds all requests until the test has seen each that it expects at once.
type rounds struct {
	t    *testing.T
	came chan string
	mu   sync.Mutex
	gate chan struct{}
}

func newRounds(t *testing.T, srv *s3stub.Server) *rounds {
	r := &rounds{t: t, came: make(chan string, 100), gate: make(chan struct{})}
	srv.SetFault(func(req *s3stub.Request) *s3stub.Fault {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.came <- fmt.Sprint(req.Op, " ", req.Class)
		return &s3stub.Fault{Wait: r.gate}
	})
	return r
}

// expect waits until these requests are there, and lets them go.
func (r *rounds) expect(want ...string) {
	r.t.Helper()
	var got []string
	for range want {
		select {
		case req := <-r.came:
			got = append(got, req)
		case <-time.After(time.Minute):
			r.t.Fatalf("of %q only %q came", want, got)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Fatalf("requests are %q, want %q", got, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gate)
	r.gate = make(chan struct{})
}

// From the token to the first acknowledgement six requests follow one another, if
// nothing is unfolded. Two more are made beside them: format.json is read while the
// manifests are listed, and the opening manifest is begun with the first append.
func TestOpeningRounds(t *testing.T) {
	srv, st := endpoint(t)
	open := func(epoch fence.Epoch) *writer.Writer {
		w, err := writer.Open(t.Context(), st, fence.NewToken(epoch), &writer.Options{Init: quickly})
		if err != nil {
			t.Error(err)
		}
		return w
	}
	first := open(1)
	if _, err := first.Append(t.Context(), recs("0")); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := newRounds(t, srv)
	acked := make(chan *writer.Writer)
	go func() {
		defer close(acked)
		w := open(2)
		if w == nil {
			return
		}
		if _, err := w.Append(t.Context(), recs("1")); err != nil {
			t.Error(err)
		}
		acked <- w
	}()
	r.expect("GetObject format.json", "ListObjectsV2 ")
	r.expect("GetObject manifest")
	r.expect("GetObject data")
	r.expect("PutObject data") // the seal
	r.expect("ListObjectsV2 ")
	r.expect("ListObjectsV2 ", "PutObject data") // the opening manifest's, and the append
	w := <-acked
	if w == nil {
		t.Fatal("not opened")
	}
	r.expect("PutObject manifest")
	srv.SetFault(nil)
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
