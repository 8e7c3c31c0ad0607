package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

func init() { store.Register("s3", open) }

// target is what a URL names.
type target struct {
	bucket, prefix            string
	endpoint, region, profile string
	pathStyle                 *bool
	options                   Options
}

// scheme describes the URLs.
var scheme = cloud.Scheme{
	Name: "s3", Root: "bucket", Hint: "?endpoint=http://host:port",
	Endpoint: "http://127.0.0.1:9000", Credentials: hintCredentials,
}

// parameters are the query parameters of an s3 URL.
var parameters = map[string]cloud.Parameter[target]{
	"endpoint": func(t *target, v string) error { t.endpoint = v; return nil },
	"region":   func(t *target, v string) error { t.region = v; return nil },
	"profile":  func(t *target, v string) error { t.profile = v; return nil },
	"path-style": func(t *target, v string) error {
		b, err := cloud.Bool(v)
		t.pathStyle = &b
		return err
	},
	"checksum":       func(t *target, v string) error { t.options.Checksum = Checksum(v); return nil },
	"sse":            func(t *target, v string) error { t.options.SSE = v; return nil },
	"sse-kms-key-id": func(t *target, v string) error { t.options.SSEKMSKeyID = v; return nil },
	"etag": func(t *target, v string) error {
		switch v {
		case "quoted", "unquoted":
			t.options.UnquotedMatch = v == "unquoted"
			return nil
		}
		return errors.New("quoted or unquoted")
	},
	"part-size": func(t *target, v string) (err error) {
		t.options.PartSize, err = cloud.Bytes(v)
		return err
	},
}

func open(ctx context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	client, doubt, err := t.client(ctx)
	if err != nil {
		return nil, err
	}
	st, err := New(client, t.bucket, &t.options)
	if err != nil {
		return nil, err
	}
	st.service.Doubt = doubt
	return store.Sub(st, t.prefix)
}

func parse(u *url.URL) (*target, error) {
	t := &target{bucket: u.Host, prefix: u.Path}
	if err := cloud.Parse(&scheme, u, t, parameters); err != nil {
		return nil, err
	}
	if t.endpoint != "" {
		if _, err := scheme.CheckEndpoint(t.endpoint); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// client makes the SDK's client from the URL and the AWS environment. It reads files and
// variables, and sends no request.
func (t *target) client(ctx context.Context) (*s3.Client, *cloud.Doubt, error) {
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(httpClient()),
		config.WithLogger(logging.Nop{}), // a library does not write to stderr
		// Those who give out credentials are asked by clients of their own: STS, SSO, the metadata of a machine or a container.
		config.WithAPIOptions([]func(*middleware.Stack) error{bound}),
		// The SDK asks a container's service by a client without any time limit, and all requests wait for the answer.
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = cloud.Credentials() }),
	}
	if t.profile != "" {
		load = append(load, config.WithSharedConfigProfile(t.profile))
	}
	if t.region != "" {
		load = append(load, config.WithRegion(t.region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, nil, fmt.Errorf("the AWS configuration cannot be used: %w", err)
	}
	own := &found{load: func(ctx context.Context) (aws.CredentialsProvider, error) {
		cfg, err := config.LoadDefaultConfig(ctx, load...)
		return cfg.Credentials, err
	}}
	own.now.Store(&cfg.Credentials)
	doubt := &cloud.Doubt{Look: own.look}
	var bad error
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if o.Credentials != nil {
			o.Credentials = own
		}
		if b, own := cfg.HTTPClient.(*awshttp.BuildableClient); own {
			o.HTTPClient = cloud.Straight(http.Client{Transport: doubt.Over(b.GetTransport())})
		}
		if t.endpoint != "" {
			o.BaseEndpoint = &t.endpoint
		}
		custom := o.BaseEndpoint != nil && *o.BaseEndpoint != ""
		switch {
		case custom:
			if _, bad = scheme.CheckEndpoint(*o.BaseEndpoint); bad != nil {
				bad = fmt.Errorf("%w (it comes from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the AWS profile)", bad)
			}
			o.Region = cmp.Or(o.Region, "us-east-1")
		case o.Region == "":
			bad = errors.New("no region: add ?region=… to the URL or set AWS_REGION; for a server that is not AWS add ?endpoint=…")
		}
		// A bucket as host name needs DNS entries that a private server rarely has.
		o.UsePathStyle = custom
		if t.pathStyle != nil {
			o.UsePathStyle = *t.pathStyle
		}
	})
	return client, doubt, bad
}

// httpClient returns a client whose certificates AWS_CA_BUNDLE can replace. It is for those who give out credentials; the
// store's has the same transport. The SDK takes no client whose redirects could be forbidden, so its transport does that.
func httpClient() *awshttp.BuildableClient {
	dial := func(d *net.Dialer) { d.Timeout = 10 * time.Second }
	stay := func(t *http.Transport) {
		proxy := t.Proxy
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			// guard:stays-secret. Who gives out credentials is asked where the user has said, and nowhere else.
			if r.Response != nil {
				return nil, errRedirect
			}
			return proxy(r)
		}
	}
	return awshttp.NewBuildableClient().WithTimeout(cloud.CredentialsTimeout).WithDialerOptions(dial).WithTransportOptions(cloud.Tune, stay)
}

var errRedirect = errors.New("who gives out credentials redirects to another address, which is not followed")
