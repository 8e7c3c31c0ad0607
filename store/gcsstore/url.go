package gcsstore

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

func init() { store.Register("gs", open) }

// target is what a URL names.
type target struct {
	bucket, prefix string
	anonymous      bool
	options        Options
}

// scheme describes the URLs.
var scheme = cloud.Scheme{
	Name: "gs", Root: "bucket", Hint: "?endpoint=http://host:port",
	Endpoint: "http://127.0.0.1:4443", Credentials: hintCredentials,
}

// parameters are the query parameters of a gs URL.
var parameters = map[string]cloud.Parameter[target]{
	"endpoint":  func(t *target, v string) error { t.options.Endpoint = v; return nil },
	"anonymous": func(t *target, v string) (err error) { t.anonymous, err = cloud.Bool(v); return err },
	"chunk-size": func(t *target, v string) (err error) {
		t.options.ChunkSize, err = cloud.Bytes(v)
		return err
	},
}

func open(_ context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: cloud.Transport()}
	var doubt *cloud.Doubt
	if !t.anonymous {
		doubt = new(cloud.Doubt)
		own, err := login(doubt.Over(client.Transport))
		if err != nil {
			return nil, &store.Error{Kind: store.ErrDenied, Err: err, Hint: hintCredentials}
		}
		client.Transport, doubt.Look = own, own.look
	}
	st, err := New(client, t.bucket, &t.options)
	if err != nil {
		return nil, err
	}
	st.doubt = doubt
	return store.Sub(st, t.prefix)
}

func parse(u *url.URL) (*target, error) {
	t := &target{bucket: u.Host, prefix: u.Path}
	if err := cloud.Parse(&scheme, u, t, parameters); err != nil {
		return nil, err
	}
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); t.options.Endpoint == "" && host != "" {
		if !strings.Contains(host, "://") {
			host = "http://" + host
		}
		t.options.Endpoint, t.anonymous = host, true
	}
	if t.options.Endpoint != "" {
		if err := checkEndpoint(t.options.Endpoint); err != nil {
			return nil, err
		}
	}
	// guard:no-token-in-clear. No credentials are sent over plain http.
	if strings.HasPrefix(t.options.Endpoint, "http://") {
		t.anonymous = true
	}
	return t, nil
}

func checkEndpoint(endpoint string) error {
	u, err := scheme.CheckEndpoint(endpoint)
	if err == nil && strings.Trim(u.Path, "/") != "" {
		err = errors.New("the endpoint is a scheme and a host, no more")
	}
	return err
}
