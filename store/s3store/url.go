package s3store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/fencepost/fencepost/store"
)

func init() { store.Register("s3", open) }

// target is what a URL says.
type target struct {
	bucket, prefix            string
	endpoint, region, profile string
	pathStyle                 *bool
	options                   Options
}

// parameters are the query parameters of an s3 URL.
var parameters = map[string]func(*target, string) error{
	"endpoint": func(t *target, v string) error { t.endpoint = v; return nil },
	"region":   func(t *target, v string) error { t.region = v; return nil },
	"profile":  func(t *target, v string) error { t.profile = v; return nil },
	"path-style": func(t *target, v string) error {
		b, err := strconv.ParseBool(v)
		t.pathStyle = &b
		if err != nil {
			return errors.New("true or false")
		}
		return nil
	},
	"checksum":              func(t *target, v string) error { t.options.Checksum = Checksum(v); return nil },
	"sse":                   func(t *target, v string) error { t.options.SSE = v; return nil },
	"sse-kms-key-id":        func(t *target, v string) error { t.options.SSEKMSKeyID = v; return nil },
	"expected-bucket-owner": func(t *target, v string) error { t.options.ExpectedBucketOwner = v; return nil },
	"request-payer": func(t *target, v string) error {
		if v != "requester" {
			return errors.New("requester")
		}
		t.options.RequesterPays = true
		return nil
	},
	"etag": func(t *target, v string) error {
		switch v {
		case "quoted", "unquoted":
			t.options.UnquotedMatch = v == "unquoted"
			return nil
		}
		return errors.New("quoted or unquoted")
	},
	"part-size": func(t *target, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return errors.New("a number of bytes")
		}
		t.options.PartSize = n
		return nil
	},
}

// Open opens the bucket that a URL names, s3://bucket/prefix, with these
// parameters:
//
//	endpoint               another server than AWS: http://127.0.0.1:9000
//	region                 default AWS_REGION or the profile's; us-east-1 with an endpoint
//	profile                of the shared AWS configuration
//	path-style             true or false; default true with an endpoint
//	checksum               crc32c (default), crc32 or none
//	etag                   quoted (default) or unquoted, which Ceph's RGW needs
//	sse, sse-kms-key-id    AES256, aws:kms or aws:kms:dsse, and the key
//	request-payer          requester
//	expected-bucket-owner  the account that must own the bucket
//	part-size              of large uploads, in bytes
//
// It sends no request. Errors are [store.ErrInvalid] and say what is wrong.
func Open(ctx context.Context, rawURL string) (store.Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "s3" {
		// The parser's error would repeat the URL.
		return nil, invalid("s3", errors.New("not an s3 URL; write s3://bucket/prefix"))
	}
	return open(ctx, u)
}

func invalid(name string, err error) error {
	return &store.Error{Op: "open", Key: name, Kind: store.ErrInvalid, Err: err}
}

func open(ctx context.Context, u *url.URL) (store.Store, error) {
	name := "s3://" + u.Host + u.Path
	t, err := parse(u)
	if err != nil {
		return nil, invalid(name, err)
	}
	client, err := t.client(ctx)
	if err != nil {
		return nil, invalid(name, err)
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
		return nil, errors.New("credentials do not belong into a URL; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	case u.Opaque != "" || u.Fragment != "":
		return nil, errors.New("not an s3 URL; write s3://bucket/prefix")
	case t.bucket == "":
		return nil, errors.New("the bucket is missing; write s3://bucket/prefix")
	case strings.Contains(u.Host, ":"):
		return nil, errors.New("what follows s3:// is a bucket, not a host; write s3://bucket/prefix?endpoint=http://host:port")
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
	if t.endpoint != "" {
		if err := checkEndpoint(t.endpoint); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the endpoint is not a URL such as http://127.0.0.1:9000")
	case u.User != nil:
		return errors.New("credentials do not belong into the endpoint; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the endpoint has no parameters of its own; if one was meant for the store, write & for ? before it")
	}
	return nil
}

// client makes the SDK's client from the URL and the AWS environment.
func (t *target) client(ctx context.Context) (*s3.Client, error) {
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(httpClient()),
		config.WithLogger(logging.Nop{}), // a library does not write to stderr
	}
	if t.profile != "" {
		load = append(load, config.WithSharedConfigProfile(t.profile))
	}
	if t.region != "" {
		load = append(load, config.WithRegion(t.region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("the AWS configuration cannot be used: %w", err)
	}
	var bad error
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if t.endpoint != "" {
			o.BaseEndpoint = &t.endpoint
		}
		custom := o.BaseEndpoint != nil && *o.BaseEndpoint != ""
		switch {
		case custom:
			if bad = checkEndpoint(*o.BaseEndpoint); bad != nil {
				bad = fmt.Errorf("%w (it comes from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the AWS profile)", bad)
			}
			if o.Region == "" {
				o.Region = "us-east-1"
			}
		case o.Region == "":
			bad = errors.New("no region: add ?region=… to the URL or set AWS_REGION; for another server than AWS add ?endpoint=…")
		}
		// Buckets as host names need DNS that a server of one's own rarely has.
		o.UsePathStyle = custom
		if t.pathStyle != nil {
			o.UsePathStyle = *t.pathStyle
		}
	})
	return client, bad
}

// httpClient keeps enough connections open for a writer's pipeline: the SDK's
// ten would make every burst open, and close, the rest anew.
func httpClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 10 * time.Second }).
		WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns = 0 // no limit but the next line's
			t.MaxIdleConnsPerHost = 256
			t.WriteBufferSize = 64 << 10
			t.ReadBufferSize = 32 << 10
			// Completing an upload of many parts may take a minute; whoever wants
			// an answer sooner has a context.
			t.ResponseHeaderTimeout = 2 * time.Minute
		})
}
