package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
)

// Those who give out credentials answer without an end: STS, SSO, a container's service and a machine's metadata, with success or with an error.
// A request fails, and nobody runs out of memory.
//
// guard:bounded-answer. Without this limit: a broken server, or a proxy before it, answers a listing or a question for
// credentials with an endless body; the SDK reads it into memory until the process is killed.
func TestEndlessCredentials(t *testing.T) {
	if !test.InChild(t, 2<<30) {
		return
	}
	write := func(name, content string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	for _, status := range []int{200, 400} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/box") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "600")
			w.WriteHeader(status)
			begin := `{"Code":"Success","AccessKeyId":"`
			if r.Method == http.MethodPost {
				begin = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>"
			}
			_, err := w.Write([]byte(begin))
			for block := bytes.Repeat([]byte("x"), 1<<20); err == nil; {
				_, err = w.Write(block)
			}
		}))
		for name, env := range map[string]map[string]string{
			"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": srv.URL + "/credentials"},
			"machine":   {"AWS_EC2_METADATA_SERVICE_ENDPOINT": srv.URL},
			"STS": {
				"AWS_ENDPOINT_URL_STS": srv.URL, "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE": write("token", "token"),
			},
		} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				empty := write("config", "")
				for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
					t.Setenv(name, empty)
				}
				for name, value := range env {
					t.Setenv(name, value)
				}
				st, err := store.Open(t.Context(), "s3://box?region=eu-west-1&endpoint="+srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				took := test.Allocated(func() { _, err = st.Get(ctx, "k", nil) })
				if err == nil || ctx.Err() != nil || took > 64<<20 {
					t.Errorf("%v; it took %d bytes", err, took)
				}
				t.Log(took, err)
			})
		}
		srv.Close()
	}
}

// keys sets where the credentials come from, and returns a function that puts a key there.
func keys(t *testing.T) (write func(key string)) {
	file := filepath.Join(t.TempDir(), "credentials")
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	return func(key string) {
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id="+key+"\naws_secret_access_key=s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// takes is an empty store that takes one key, which the test sets. Its other answer is the given one.
func takes(t *testing.T, refuse func(http.ResponseWriter)) (valid *atomic.Value, open func() store.Store) {
	valid = new(atomic.Value)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+valid.Load().(string)+"/") {
			refuse(w)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	}))
	t.Cleanup(srv.Close)
	return valid, func() store.Store {
		st, err := store.Open(t.Context(), "s3://box?region=x&endpoint="+srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

func invalidKey(w http.ResponseWriter) {
	w.WriteHeader(http.StatusForbidden)
	io.WriteString(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
}

// Somebody makes the old key void, and puts a new one into the file a moment later. A holder tries again, and a candidate waits.
func TestCredentialsRenewedOnDisk(t *testing.T) {
	for name, refuse := range map[string]func(http.ResponseWriter){"a code": invalidKey, "401": func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }} {
		t.Run(name, func(t *testing.T) {
			write := keys(t)
			write("OLD")
			valid, open := takes(t, refuse)
			valid.Store("OLD")
			st := open()
			get := func() error { _, err := st.Get(t.Context(), "k", nil); return err }
			if err := get(); !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			valid.Store("NEW")
			if err := get(); err == nil || store.Permanent(err) {
				t.Errorf("new ones may come: %v", err)
			}
			_, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
			if store.OutcomeOf(err) != store.Unknown {
				t.Errorf("put: %v", err)
			}
			write("NEW")
			// Many fail at once, and each may be tried again.
			errs := make(chan error, 8)
			for range cap(errs) {
				go func() { errs <- get() }()
			}
			for range cap(errs) {
				if err := <-errs; store.Permanent(err) && !errors.Is(err, store.ErrNotFound) {
					t.Errorf("new ones are there: %v", err)
				}
			}
			if err := get(); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("with new ones: %v", err)
			}
		})
	}
}

// A key that the store has never taken is wrong.
func TestWrongCredentials(t *testing.T) {
	keys(t)("OLD")
	valid, open := takes(t, invalidKey)
	valid.Store("OTHER")
	if _, err := open().Get(t.Context(), "k", nil); !errors.Is(err, store.ErrDenied) {
		t.Error(err)
	}
}

// Credentials are looked for where the answer never comes. A request ends when its context does, also if it only waits for
// another one that looks.
func TestSearchThatHangs(t *testing.T) {
	write := keys(t)
	write("OLD")
	valid, open := takes(t, invalidKey)
	valid.Store("OLD")
	st := open()
	if _, err := st.Get(t.Context(), "k", nil); !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	valid.Store("NEW")
	asked := make(chan struct{}, 100)
	end := make(chan struct{})
	held := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-end
	}))
	t.Cleanup(held.Close)
	t.Cleanup(func() { close(end) })
	os.Remove(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"))
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", held.URL)
	long, stop := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { _, err := st.Get(long, "k", nil); first <- err }()
	<-asked
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := st.Get(short, "k", nil); err == nil || store.Permanent(err) {
		t.Errorf("while another one looks: %v", err)
	}
	if long.Err() != nil {
		t.Error("it has waited for the other one")
	}
	stop()
	if err := <-first; err == nil || store.Permanent(err) {
		t.Errorf("who looks: %v", err)
	}
}

// Who gives out credentials redirects to another address, which would get the token.
//
// guard:stays-secret. Without this: a proxy before STS answers 307; the SDK sends the web identity token, which is in the body, to
// whatever address the answer has, over plain HTTP too.
func TestCredentialsFollowNoRedirect(t *testing.T) {
	var followed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	t.Cleanup(other.Close)
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(near.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	for name, env := range map[string]map[string]string{
		"container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": near.URL},
		"machine":   {"AWS_EC2_METADATA_SERVICE_ENDPOINT": near.URL},
		"STS":       {"AWS_ENDPOINT_URL_STS": near.URL, "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE": token},
	} {
		t.Run(name, func(t *testing.T) {
			keys(t)
			for name, value := range env {
				t.Setenv(name, value)
			}
			st, err := store.Open(t.Context(), "s3://box?region=x&endpoint=http://127.0.0.1:1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Get(t.Context(), "k", nil); err == nil || followed.Load() > 0 {
				t.Errorf("%v; %d requests went elsewhere", err, followed.Swap(0))
			}
		})
	}
}
