package azurestore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

func init() { store.Register("az", open) }

// target is what a URL names.
type target struct {
	container, prefix string
	account, endpoint string
	anonymous         bool
	options           Options
}

// scheme describes the URLs.
var scheme = cloud.Scheme{
	Name: "az", Root: "container", Hint: "?account=name, or &endpoint=http://host:port/account",
	Endpoint: "http://127.0.0.1:10000/devstoreaccount1", Credentials: hintCredentials,
}

// parameters are the query parameters of an az URL.
var parameters = map[string]cloud.Parameter[target]{
	"account":    func(t *target, v string) error { t.account = v; return nil },
	"endpoint":   func(t *target, v string) error { t.endpoint = v; return nil },
	"anonymous":  func(t *target, v string) (err error) { t.anonymous, err = cloud.Bool(v); return err },
	"block-size": func(t *target, v string) (err error) { t.options.BlockSize, err = cloud.Bytes(v); return err },
}

func open(_ context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	doubt := new(cloud.Doubt)
	client, err := t.client(doubt)
	if err != nil {
		e := &store.Error{Kind: store.ErrInvalid, Err: err}
		if errors.As(err, new(*cloud.LoginError)) {
			e.Kind, e.Hint = store.ErrDenied, hintCredentials
		}
		return nil, e
	}
	st, err := New(client, &t.options)
	if err != nil {
		return nil, err
	}
	if !t.anonymous {
		st.doubt = doubt
	}
	return store.Sub(st, t.prefix)
}

func parse(u *url.URL) (*target, error) {
	t := &target{container: u.Host, prefix: u.Path}
	if err := cloud.Parse(&scheme, u, t, parameters); err != nil {
		return nil, err
	}
	if strings.Contains(u.Host, ".") {
		return nil, scheme.NotAHost()
	}
	t.account = cmp.Or(t.account, os.Getenv("AZURE_STORAGE_ACCOUNT"))
	if strings.ContainsAny(t.account, "/.:@?#%") {
		return nil, errors.New("the account is a name, not an address; write an address as endpoint=")
	}
	if t.endpoint != "" {
		if _, err := scheme.CheckEndpoint(t.endpoint); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// client makes the SDK's client from the URL and the environment.
func (t *target) client(doubt *cloud.Doubt) (*container.Client, error) {
	options := clientOptions(doubt.Over(cloud.Transport()))
	key, sas, connection := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN"), os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	if connection != "" && t.account == "" && t.endpoint == "" && !t.anonymous {
		client, err := container.NewClientFromConnectionString(connection, t.container, options)
		if err != nil {
			// The SDK's error may repeat the secret.
			return nil, errors.New("AZURE_STORAGE_CONNECTION_STRING cannot be used; copy it anew from the account's page of keys")
		}
		// guard:no-signature-in-clear. A connection string with plain http and a shared access
		// signature is refused, unless it is of an emulator on this machine.
		//
		//mutant:replace inClear(client.URL()) => false
		if strings.Contains(client.URL(), "?") && inClear(client.URL()) {
			return nil, errInClear
		}
		return client, nil
	}
	if t.endpoint == "" {
		if t.account == "" {
			return nil, errors.New("no account: add ?account=… to the URL, or set AZURE_STORAGE_ACCOUNT; for an emulator add ?endpoint=http://host:port/account")
		}
		t.endpoint = "https://" + t.account + ".blob.core.windows.net"
	}
	address := strings.TrimSuffix(t.endpoint, "/") + "/" + t.container
	plain := strings.HasPrefix(t.endpoint, "http://")
	switch {
	case t.anonymous:
		return container.NewClientWithNoCredential(address, options)
	case key != "":
		if t.account == "" {
			return nil, errors.New("AZURE_STORAGE_KEY needs the name of its account; add &account=… to the URL, or set AZURE_STORAGE_ACCOUNT")
		}
		shared, err := azblob.NewSharedKeyCredential(t.account, key)
		if err != nil {
			return nil, errors.New("AZURE_STORAGE_KEY is not the key of an account: it is not base64")
		}
		return container.NewClientWithSharedKeyCredential(address, shared, options)
	case sas != "" && !inClear(t.endpoint):
		return container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(sas, "?"), options)
	case plain:
		// guard:no-token-in-clear. No bearer token is sent over plain http, and a shared access
		// signature only to an emulator on this machine.
		return nil, errInClear
	}
	found, err := newTokens(func() (azcore.TokenCredential, error) {
		return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: azcore.ClientOptions{Transport: cloud.Credentials()}})
	})
	if err != nil {
		return nil, err
	}
	doubt.Look = found.look
	return container.NewClient(address, found, options)
}

var errInClear = errors.New("over plain http only AZURE_STORAGE_KEY, a connection string with an AccountKey, or anonymous=true can be used, and a shared access signature for an emulator on 127.0.0.1 or localhost")

// inClear reports whether an address is reached over plain http and is not one of this machine, such as
// an emulator's.
func inClear(address string) bool {
	u, err := url.Parse(address)
	return err != nil || !strings.EqualFold(u.Scheme, "https") && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback()
}
