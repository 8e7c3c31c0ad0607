package gcsstore

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/httptransport"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

type provider struct{ err error }

func (p *provider) Token(context.Context) (*auth.Token, error) {
	return &auth.Token{Value: "x", Type: "Bearer", Expiry: time.Unix(1, 0)}, p.err // it is never kept
}

// Credentials that were never there are the request's fault; those that cannot
// be renewed just now may come back, and nothing was sent in either case.
func TestLoginErrors(t *testing.T) {
	from := &provider{}
	none := http.RoundTripper(roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("sent") }))
	client, err := httptransport.NewClient(&httptransport.Options{
		Credentials:      auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: &tokens{from: from, login: new(cloud.Login)}, UniverseDomainProvider: googleapis}),
		BaseRoundTripper: none,
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := New(client, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	cloudtest.Logins(t, st, func(err error) { from.err = err }, "sent")
}

var googleapis = auth.CredentialsPropertyFunc(func(context.Context) (string, error) { return "googleapis.com", nil })

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return f(r)
}

// The metadata service of the machine gives the token, without a proxy. One that answers without end does not fill the memory.
func TestMachine(t *testing.T) {
	endless := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/token" || r.URL.Query().Get("scopes") == "" || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
		for piece := make([]byte, 1<<20); endless; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(srv.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CLOUDSDK_CONFIG", t.TempDir())
	ask := func() (token string, err error) {
		rt, err := login(roundTrip(func(r *http.Request) (*http.Response, error) {
			token = r.Header.Get("Authorization")
			return nil, errors.New("sent")
		}))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://storage.googleapis.com/", nil)
		_, err = rt.RoundTrip(r) //nolint:bodyclose // it is always an error
		return token, err
	}
	if token, err := ask(); token != "Bearer t" || err == nil || err.Error() != "sent" {
		t.Errorf("%q, %v", token, err)
	}
	endless = true
	var err error
	test.Affords(t, 0, 0, 16<<20, func() { _, err = ask() })
	if err == nil || err.Error() == "sent" || len(err.Error()) > 2000 {
		t.Errorf("%.100v", err)
	}
}

// takes opens an empty bucket that takes one token, which the test sets, and answers 401 to any other.
func takes(t *testing.T, valid *atomic.Value) store.Store {
	doubt := new(cloud.Doubt)
	own, err := login(doubt.Over(roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if r.Header.Get("Authorization") == "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusNotFound)
		} else {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return w.Result(), nil
	})))
	if err != nil {
		t.Fatal(err)
	}
	doubt.Look = own.look
	st, err := New(&http.Client{Transport: own}, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	st.doubt = doubt
	return st
}

// gives is a service that gives out the token that the test sets, as a machine's metadata or a token service does.
func gives(t *testing.T) (token *atomic.Value, url string) {
	token = new(atomic.Value)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := token.Load().(string)
		if r.Method == http.MethodPost { // for the key whose file says so
			name = strings.TrimPrefix(r.URL.Path, "/")
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": name, "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(srv.Close)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CLOUDSDK_CONFIG", t.TempDir())
	return token, srv.URL
}

// A machine resumes with an old token that it takes for valid, since its clock stood still; or somebody replaces the key on the disk, and the
// tokens of the old one are void. A holder tries again, and a candidate waits; then others are there.
func TestTokenRefused(t *testing.T) {
	for name, renew := range map[string]func(t *testing.T) (old, now func()){
		"machine": func(t *testing.T) (func(), func()) {
			token, url := gives(t)
			t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(url, "http://"))
			return func() { token.Store("old") }, func() { token.Store("new") }
		},
		"file": func(t *testing.T) (func(), func()) {
			_, url := gives(t)
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "key.json")
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			write := func(which string) func() {
				return func() {
					b, _ := json.Marshal(map[string]string{
						"type": "service_account", "client_email": "a@b", "token_uri": url + "/" + which,
						"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
					})
					if err := os.WriteFile(file, b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			return write("old"), write("new")
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, now := renew(t)
			old()
			var valid atomic.Value
			valid.Store("other")
			st := takes(t, &valid)
			get := func() error { _, err := st.Get(t.Context(), "k", nil); return err }
			if err := get(); !errors.Is(err, store.ErrDenied) {
				t.Errorf("never taken: %v", err)
			}
			valid.Store("old")
			if err := get(); !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			valid.Store("new")
			_, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
			if store.OutcomeOf(err) != store.Unknown {
				t.Errorf("others may come: %v", err)
			}
			now()
			if err := get(); err == nil || store.Permanent(err) {
				t.Errorf("others are there: %v", err)
			}
			if err := get(); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("with others: %v", err)
			}
		})
	}
}
