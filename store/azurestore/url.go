package azurestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
)

func init() { store.Register("az", open) }

// target is what a URL says.
type target struct {
	container, prefix string
	account, endpoint string
	anonymous         bool
	options           Options
}

// parameters are the query parameters of an az URL.
var parameters = map[string]func(*target, string) error{
	"account":  func(t *target, v string) error { t.account = v; return nil },
	"endpoint": func(t *target, v string) error { t.endpoint = v; return nil },
	"anonymous": func(t *target, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("true or false")
		}
		t.anonymous = b
		return nil
	},
	"block-size": func(t *target, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return errors.New("a number of bytes")
		}
		t.options.BlockSize = n
		return nil
	},
}

// Open opens the container that a URL names, az://container/prefix, with these
// parameters:
//
//	account     the storage account; default AZURE_STORAGE_ACCOUNT
//	endpoint    where the account's blobs are; default
//	            https://ACCOUNT.blob.core.windows.net. An emulator has the account
//	            in the path: http://127.0.0.1:10000/devstoreaccount1
//	anonymous   true: send no credentials
//	block-size  of large uploads, in bytes
//
// It sends no request. Errors are [store.ErrInvalid], or [store.ErrDenied] if
// there are no credentials, and say what is wrong.
func Open(ctx context.Context, rawURL string) (store.Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "az" {
		// The parser's error would repeat the URL.
		return nil, invalid("az", errNotURL)
	}
	return open(ctx, u)
}

var errNotURL = errors.New("not an az URL; write az://container/prefix")

func open(_ context.Context, u *url.URL) (store.Store, error) {
	name := "az://" + u.Host + u.Path
	t, err := parse(u)
	if err != nil {
		return nil, invalid(name, err)
	}
	client, err := t.client()
	if err != nil {
		e := &store.Error{Op: "open", Key: name, Kind: store.ErrInvalid, Err: err}
		if errors.As(err, new(*loginError)) {
			e.Kind, e.Hint = store.ErrDenied, hintCredentials
		}
		return nil, e
	}
	st, err := New(client, &t.options)
	if err != nil {
		return nil, err
	}
	return store.Sub(st, t.prefix)
}

func parse(u *url.URL) (*target, error) {
	t := &target{container: u.Host, prefix: u.Path}
	switch {
	case u.User != nil:
		return nil, errors.New("credentials do not belong into a URL; " + hintCredentials)
	case u.Opaque != "" || u.Fragment != "":
		return nil, errNotURL
	case t.container == "":
		return nil, errors.New("the container is missing; write az://container/prefix")
	case strings.ContainsAny(u.Host, ":."):
		return nil, errors.New("what follows az:// is a container, not a host; write az://container/prefix?account=name, or &endpoint=http://host:port/account")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters after ? cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, known := parameters[name]
		switch {
		case !known:
			return nil, fmt.Errorf("unknown parameter %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "))
		case len(query[name]) > 1:
			return nil, fmt.Errorf("parameter %q is given twice", name)
		case query[name][0] == "":
			return nil, fmt.Errorf("parameter %q is empty", name)
		}
		if err := set(t, query[name][0]); err != nil {
			return nil, fmt.Errorf("parameter %q is %w, not %q", name, err, query[name][0])
		}
	}
	t.account = cmp.Or(t.account, os.Getenv("AZURE_STORAGE_ACCOUNT"))
	if strings.ContainsAny(t.account, "/.:@?#%") {
		return nil, errors.New("the account is a name, not an address; that would be the endpoint")
	}
	if t.endpoint != "" {
		return t, checkEndpoint(t.endpoint)
	}
	return t, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the endpoint is not a URL such as http://127.0.0.1:10000/devstoreaccount1")
	case u.User != nil:
		return errors.New("credentials do not belong into the endpoint; " + hintCredentials)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the endpoint has no parameters of its own; a signature belongs into AZURE_STORAGE_SAS_TOKEN; if one was meant for the store, write & for ? before it")
	}
	return nil
}

// client makes the SDK's client from the URL and the environment.
func (t *target) client() (*container.Client, error) {
	key, sas, connection := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN"), os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	if connection != "" && t.account == "" && t.endpoint == "" && !t.anonymous {
		client, err := container.NewClientFromConnectionString(connection, t.container, ClientOptions())
		if err != nil {
			// Its error may repeat what it was given.
			return nil, errors.New("AZURE_STORAGE_CONNECTION_STRING cannot be used; copy it anew from the account's page of keys")
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
	switch {
	case t.anonymous:
		return container.NewClientWithNoCredential(address, ClientOptions())
	case key != "":
		if t.account == "" {
			return nil, errors.New("AZURE_STORAGE_KEY needs to know whose it is: add &account=… to the URL, or set AZURE_STORAGE_ACCOUNT")
		}
		shared, err := azblob.NewSharedKeyCredential(t.account, key)
		if err != nil {
			return nil, errors.New("AZURE_STORAGE_KEY is no key of an account: it is not base64")
		}
		return container.NewClientWithSharedKeyCredential(address, shared, ClientOptions())
	case sas != "":
		return container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(sas, "?"), ClientOptions())
	case strings.HasPrefix(t.endpoint, "http://"):
		// guard:no-token-in-clear. A bearer token is all that it takes to be its
		// owner; a key only signs, and a signature is limited.
		return nil, errors.New("over plain http only AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or anonymous=true can be used")
	}
	found, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, &loginError{err: err}
	}
	return container.NewClient(address, &tokens{from: found}, ClientOptions())
}
