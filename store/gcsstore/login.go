package gcsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	"cloud.google.com/go/compute/metadata"
	"google.golang.org/api/storage/v1"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

const hintCredentials = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login, or run where a service account is attached; " +
	"an emulator needs none: add ?endpoint=http://…"

// found adds the application default credentials to requests. Google's library reads files once. So if the store, or who gives out
// tokens, says that they are wrong, somebody may have put others there meanwhile.
type found struct {
	base  http.RoundTripper
	login cloud.Login
	now   atomic.Pointer[credential]
}

// credential is what was found once.
type credential struct {
	http.RoundTripper
	tokens *tokens
}

// login returns a transport that adds the application default credentials.
func login(base http.RoundTripper) (*found, error) {
	f := &found{base: base, login: cloud.Login{Driver: "gcsstore"}}
	now, err := f.find()
	if err != nil {
		return nil, err
	}
	f.now.Store(now)
	return f, nil
}

// RoundTrip implements [http.RoundTripper].
func (f *found) RoundTrip(r *http.Request) (*http.Response, error) { return f.now.Load().RoundTrip(r) }

func (f *found) find() (*credential, error) {
	found, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{storage.DevstorageReadWriteScope}, Client: cloud.Credentials()})
	if err != nil {
		return nil, fmt.Errorf("gcsstore: no credentials: %w", err)
	}
	if found.JSON() == nil {
		found.TokenProvider = auth.NewCachedTokenProvider(&machine{metadata.NewClient(cloud.Metadata())}, nil)
	}
	c := &credential{tokens: &tokens{from: found.TokenProvider, login: &f.login}}
	found.TokenProvider = c.tokens
	client, err := httptransport.NewClient(&httptransport.Options{Credentials: found, BaseRoundTripper: f.base})
	if err != nil {
		return nil, fmt.Errorf("gcsstore: the credentials cannot be used: %w", err)
	}
	c.RoundTripper = client.Transport
	return c, nil
}

// look looks for credentials again. It reports whether they give another token than before, and takes them.
func (f *found) look(ctx context.Context) bool {
	next, err := f.find()
	if err != nil {
		return false
	}
	before := f.now.Load().tokens.last.Load()
	token, err := next.tokens.Token(ctx)
	if err != nil || before != nil && token.Value == before.Value {
		return false
	}
	f.now.Store(next)
	return true
}

// machine gets tokens of the service account that is attached to this machine. Google's own client for that reads an answer of
// any length into memory.
type machine struct{ from *metadata.Client }

func (m *machine) Token(ctx context.Context) (*auth.Token, error) {
	text, err := m.from.GetWithContext(ctx, "instance/service-accounts/default/token?scopes="+url.QueryEscape(storage.DevstorageReadWriteScope))
	if err != nil {
		return nil, err
	}
	var got struct {
		Token   string `json:"access_token"`
		Type    string `json:"token_type"`
		Seconds int    `json:"expires_in"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Token == "" || got.Seconds == 0 {
		return nil, fmt.Errorf("the metadata service of this machine gives no token: %w", cmp.Or(err, errors.New("it is incomplete")))
	}
	return &auth.Token{
		Value: got.Token, Type: got.Type, Expiry: clock.System().Wall().Add(time.Duration(got.Seconds) * time.Second),
		Metadata: map[string]any{"auth.google.tokenSource": "compute-metadata"}, // as Google's own: it is good in any universe
	}, nil
}

// tokens marks the errors of getting a token, so that they can be told from an answer of
// the store.
type tokens struct {
	from  auth.TokenProvider
	login *cloud.Login
	last  atomic.Pointer[auth.Token]
}

func (t *tokens) Token(ctx context.Context) (*auth.Token, error) {
	token, err := t.from.Token(ctx)
	if err := t.login.Note(err); err != nil {
		return nil, err
	}
	t.last.Store(token)
	return token, nil
}
