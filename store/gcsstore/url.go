package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/store"
)

func init() { store.Register("gs", open) }

// target is what a URL says.
type target struct {
	bucket, prefix string
	anonymous      bool
	options        Options
}

// parameters are the query parameters of a gs URL.
var parameters = map[string]func(*target, string) error{
	"endpoint": func(t *target, v string) error { t.options.Endpoint = v; return nil },
	"anonymous": func(t *target, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("true or false")
		}
		t.anonymous = b
		return nil
	},
	"user-project": func(t *target, v string) error { t.options.UserProject = v; return nil },
	"chunk-size": func(t *target, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n <= 0 {
			return errors.New("a number of bytes")
		}
		t.options.ChunkSize = n
		return nil
	},
}

// Open opens the bucket that a URL names, gs://bucket/prefix, with these
// parameters:
//
//	endpoint      another service than Google's: http://127.0.0.1:4443
//	anonymous     true: send no credentials; always so if the endpoint is plain http
//	user-project  the project that pays for requests
//	chunk-size    of large uploads, in bytes
//
// Without an endpoint STORAGE_EMULATOR_HOST counts, as for Google's own
// programs. It sends no request to the store; credentials may be looked for at
// the machine's metadata service. Errors are [store.ErrInvalid], or
// [store.ErrDenied] if there are no credentials, and say what is wrong.
func Open(ctx context.Context, rawURL string) (store.Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "gs" {
		// The parser's error would repeat the URL.
		return nil, invalid("gs", errNotURL)
	}
	return open(ctx, u)
}

var errNotURL = errors.New("not a gs URL; write gs://bucket/prefix")

func open(ctx context.Context, u *url.URL) (store.Store, error) {
	name := "gs://" + u.Host + u.Path
	t, err := parse(u)
	if err != nil {
		return nil, invalid(name, err)
	}
	client := &http.Client{Transport: roundTripper()}
	if !t.anonymous {
		if client.Transport, err = login(ctx, client.Transport); err != nil {
			return nil, &store.Error{Op: "open", Key: name, Kind: store.ErrDenied, Err: err, Hint: hintCredentials}
		}
	}
	st, err := New(client, t.bucket, &t.options)
	if err != nil {
		return nil, err
	}
	return store.Sub(st, t.prefix)
}

func parse(u *url.URL) (*target, error) {
	t := &target{bucket: u.Host, prefix: u.Path}
	switch {
	case u.User != nil:
		return nil, errors.New("credentials do not belong into a URL; " + hintCredentials)
	case u.Opaque != "" || u.Fragment != "":
		return nil, errNotURL
	case t.bucket == "":
		return nil, errors.New("the bucket is missing; write gs://bucket/prefix")
	case strings.Contains(u.Host, ":"):
		return nil, errors.New("what follows gs:// is a bucket, not a host; write gs://bucket/prefix?endpoint=http://host:port")
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
	// guard:no-token-in-clear. A bearer token is all that it takes to be its owner.
	if strings.HasPrefix(t.options.Endpoint, "http://") {
		t.anonymous = true
	}
	return t, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the endpoint is not a URL such as http://127.0.0.1:4443")
	case u.User != nil:
		return errors.New("credentials do not belong into the endpoint; " + hintCredentials)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("the endpoint is a scheme and a host, no more; if a parameter was meant for the store, write & for ? before it")
	}
	return nil
}

// roundTripper keeps enough connections open for a writer's pipeline.
func roundTripper() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one unless somebody has replaced it
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.DisableCompression = true // objects come as they are stored
	t.MaxIdleConns = 0          // no limit but the next line's
	t.MaxIdleConnsPerHost = 256
	t.WriteBufferSize = 64 << 10
	t.ReadBufferSize = 32 << 10
	// Whoever wants an answer sooner has a context.
	t.ResponseHeaderTimeout = 2 * time.Minute
	// One connection carries many requests: a dead one must be noticed.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}
