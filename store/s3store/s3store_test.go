package s3store_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
)

const secret = "s3cr3t-that-nobody-may-see"

// The tests must not depend on the AWS environment of whoever runs them.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("AWS_CONFIG_FILE", os.DevNull)
	os.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	os.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	os.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	os.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	os.Exit(m.Run())
}

func start(t testing.TB, opts *s3stub.Options) *s3stub.Server {
	t.Helper()
	srv := s3stub.Start(opts)
	t.Cleanup(srv.Close)
	return srv
}

// open opens the stub's bucket with more parameters, such as "checksum=none".
func open(t testing.TB, srv *s3stub.Server, params ...string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), strings.Join(append([]string{srv.StoreURL()}, params...), "&"))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func put(t testing.TB, st store.Store, key, body string, cond store.Condition) store.Info {
	t.Helper()
	info, err := st.Put(t.Context(), key, []byte(body), &store.PutOptions{If: cond})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func get(t testing.TB, st store.Store, key string, opts *store.GetOptions) (string, store.Info) {
	t.Helper()
	obj, err := st.Get(t.Context(), key, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer obj.Body.Close()
	body, err := io.ReadAll(obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), obj.Info
}

func asError(t testing.TB, err error) *store.Error {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want a *store.Error", err, err)
	}
	return e
}

// headers records what one header had in the requests of an operation, and lets
// them go on.
func headers(srv *s3stub.Server, op s3stub.Op, name string) func() []string {
	var mu sync.Mutex
	var seen []string
	srv.SetFault(func(r *s3stub.Request) *s3stub.Fault {
		if r.Op == op {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, r.HTTP.Header.Get(name))
		}
		return nil
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// canceledContext is done already.
func canceledContext(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
