package azurestore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/azurestore"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

// Directories of accounts with a hierarchical namespace are no objects.
func TestListLeavesOutDirectories(t *testing.T) {
	az := newStub()
	az.blobs["directory"] = blob{etag: `"0x5"`}
	for info, err := range serve(t, az).List(t.Context(), "", nil) {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestOddAnswers(t *testing.T) {
	az := newStub()
	st := serve(t, az)
	if _, err := st.Put(t.Context(), "a/k", []byte("0123456789"), nil); err != nil {
		t.Fatal(err)
	}
	// A server that knows no ranges sends all.
	az.On("get", 0, fault{Answers: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"x"`)
		_, _ = io.WriteString(w, "0123456789")
	}})
	if body, info, err := cloudtest.Get(t, st, "a/k", &store.GetOptions{Offset: 3, Length: 4}); err != nil || body != "3456" || info.Size != 10 {
		t.Errorf("without ranges: %q, %+v, %v", body, info, err)
	}
	az.On("get", 0, fault{Answers: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789") }})
	if _, _, err := cloudtest.Get(t, st, "a/k", nil); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("without ETag: %v", err)
	}
	az.On("put", 0, fault{Answers: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }})
	if _, err := st.Put(t.Context(), "b", nil, &store.PutOptions{If: store.IfAbsent()}); store.OutcomeOf(err) != store.Unknown {
		t.Errorf("put without ETag: %v", err)
	}
	az.On("get", 0, says(http.StatusNotModified, ""))
	if _, _, err := cloudtest.Get(t, st, "a/k", nil); err == nil || errors.Is(err, store.ErrNotModified) {
		t.Errorf("304 without a condition: %v", err)
	}
}

// A version that no header can carry is none of this store's; "*" would match
// anything.
func TestVersionsOfOthers(t *testing.T) {
	az := newStub()
	cloudtest.OthersVersions(t, serve(t, az), &az.Stub, "", "*", "a\nb", "a b", `a"b`, "é", "\x00")
}

func TestDeleteFails(t *testing.T) {
	az := newStub()
	az.On("delete", 0, says(404, "ContainerNotFound"))
	if err := serve(t, az).Delete(t.Context(), "a"); !errors.Is(err, store.ErrNoBucket) {
		t.Errorf("no container: %v", err)
	}
}

// env is what the driver reads; nothing of the developer's own.
func env(t *testing.T, set map[string]string) {
	for _, name := range []string{"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"} {
		t.Setenv(name, set[name])
	}
}

// guard:no-signature-in-clear. Without this rule: an operator mistypes the address with http; the whole
// signature crosses the network in clear with each request; any listener can use it until it expires.
//
// guard:no-token-in-clear. Without this rule: an operator mistypes an endpoint with http; the token
// crosses the network in clear; any listener can use the token until it expires. A shared key may be
// used: the key is never sent, only signatures of single requests are.
func TestOpen(t *testing.T) {
	env(t, nil)
	for raw, want := range map[string]string{
		"az://box/a/b?endpoint=http://127.0.0.1:1/acc&anonymous=true": "az://box/a/b",
		"az://box?account=acc&anonymous=true":                         "az://box",
		"az://box?account=acc":                                        "az://box",
	} {
		st, err := store.Open(t.Context(), raw)
		if err != nil || st.Traits().Name != want || !st.Traits().MultiProcess || st.Traits().MinRewrite != 0 {
			t.Errorf("%s: %v, %v", raw, st, err)
		}
	}
	for raw, want := range map[string]string{
		"az://":                                     "the container is missing",
		"az://user:secret@box":                      "credentials do not belong",
		"az://user:/secret@box":                     "not a host",
		"az://acc.blob.core.windows.net/box":        "a container, not a host",
		"az://127.0.0.1:10000/box":                  "a container, not a host",
		"az://box?region=eu":                        `unknown parameter "region"; known are account, anonymous`,
		"az://box?account=a.b":                      "a name, not an address",
		"az://box":                                  "no account",
		"az://box?endpoint=http://a:b@h":            "credentials do not belong into the endpoint",
		"az://box?endpoint=http://h/a?sig=secret":   "AZURE_STORAGE_SAS_TOKEN",
		"az://box?endpoint=http://h/a":              "over plain http only",
		"az://box?endpoint=HTTP://h/a":              "the endpoint is not a URL such as",
		"az://box?account=a&block-size=99999999999": "BlockSize is 99999999999",
		"az://box/a/../b?account=a&anonymous=true":  "must not be",
	} {
		_, err := store.Open(t.Context(), raw)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"key of nobody":                            {map[string]string{"AZURE_STORAGE_KEY": "c2VjcmV0"}, "the name of its account"},
		"key is no base64":                         {map[string]string{"AZURE_STORAGE_KEY": "secret!", "AZURE_STORAGE_ACCOUNT": "a"}, "not base64"},
		"signature, http":                          {map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=secret"}, "over plain http only"},
		"connection string":                        {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "secret"}, "cannot be used"},
		"connection string, a signature over http": {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=http://h/a;SharedAccessSignature=sv=1&sig=secret"}, "over plain http only"},
		"connection string, http for the protocol": {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=http;AccountName=a;SharedAccessSignature=sv=1&sig=secret"}, "over plain http only"},
	} {
		env(t, c.env)
		url := "az://box?endpoint=https://h/a"
		switch {
		case strings.HasPrefix(name, "connection string"):
			url = "az://box"
		case name == "signature, http":
			url = "az://box?endpoint=http://h/a"
		}
		if _, err := store.Open(t.Context(), url); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := azurestore.New(nil, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}

// What the environment holds goes where it belongs.
func TestCredentials(t *testing.T) {
	var seen http.Header
	var query string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen, query = r.Header.Clone(), r.URL.RawQuery
		fail(w, http.StatusForbidden, "AuthenticationFailed")
	}))
	t.Cleanup(srv.Close)
	url := "az://box?endpoint=" + srv.URL + "/acc"
	for name, c := range map[string]struct {
		env         map[string]string
		url         string
		auth, query string
	}{
		"key":                   {map[string]string{"AZURE_STORAGE_KEY": "c2VjcmV0", "AZURE_STORAGE_ACCOUNT": "acc"}, url, "SharedKey acc:", ""},
		"signature":             {map[string]string{"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=secret"}, url, "", "sig=secret"},
		"connection":            {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acc;AccountKey=c2VjcmV0;BlobEndpoint=" + srv.URL + "/acc;"}, "az://box", "SharedKey acc:", ""},
		"connection, signature": {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=" + srv.URL + "/acc;SharedAccessSignature=sv=1&sig=secret"}, "az://box", "", "sig=secret"},
		"anonymous":             {map[string]string{"AZURE_STORAGE_KEY": "c2VjcmV0", "AZURE_STORAGE_ACCOUNT": "acc"}, url + "&anonymous=true", "", ""},
	} {
		env(t, c.env)
		st, err := store.Open(t.Context(), c.url)
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
		if !errors.Is(err, store.ErrDenied) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "clock is wrong") {
			t.Errorf("%s: %v", name, err)
		}
		if got := seen.Get("Authorization"); !strings.HasPrefix(got, c.auth) || c.auth == "" && got != "" {
			t.Errorf("%s: Authorization %q", name, got)
		}
		if !strings.Contains(query, c.query) || strings.Contains(st.Traits().Name, "secret") {
			t.Errorf("%s: query %q", name, query)
		}
	}
	srv.Close()
	env(t, map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=secret"})
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	if err == nil || !strings.Contains(err.Error(), "nothing answers at "+srv.URL+"/acc") || strings.Contains(err.Error(), "secret") || store.OutcomeOf(err) != store.Unknown {
		t.Errorf("a server that is away: %v", err)
	}
}

type provider struct{ err error }

func (p *provider) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "x", ExpiresOn: time.Unix(1, 0)}, p.err // it is never kept
}

// Credentials that were never there are the request's fault; those that cannot
// be renewed just now may come back, and nothing was sent in either case.
func TestLoginErrors(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fail(w, 503, "ServerBusy") }))
	t.Cleanup(srv.Close)
	from := &provider{}
	opts := azurestore.ClientOptions()
	opts.Transport = srv.Client()
	client, err := container.NewClient(srv.URL+"/acc/box", azurestore.Marked(from), opts)
	if err != nil {
		t.Fatal(err)
	}
	st, err := azurestore.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	cloudtest.Logins(t, st, func(err error) { from.err = err }, "503")
}
