package gcsstore

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Store is a bucket. It is safe for concurrent use.
type Store struct {
	bucket *storage.BucketHandle
	name   string // of the bucket
	opts   Options
}

var _ store.Store = (*Store)(nil)

// New returns the store of a bucket. It sends no request. The client adds
// credentials to requests, and may do no more: it must not send one again.
// [Open] makes one from the environment.
func New(client *http.Client, bucket string, opts *Options) (*Store, error) {
	if client == nil || bucket == "" {
		return nil, cloud.Invalid("gs://"+bucket, errors.New("a client and the name of a bucket are needed"))
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, cloud.Invalid("gs://"+bucket, err)
	}
	base := client.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	own := *client
	own.Transport = &transport{base: base}
	sdk := []option.ClientOption{
		option.WithHTTPClient(&own),
		option.WithoutAuthentication(), // the client's business
		// The XML API has other errors, and other ways to write a key.
		storage.WithJSONReads(),
		storage.WithDisabledClientMetrics(),
	}
	if o.Endpoint != "" {
		sdk = append(sdk, option.WithEndpoint(strings.TrimSuffix(o.Endpoint, "/")+"/storage/v1/"))
	}
	// The context is for credentials, which are not the SDK's to find here.
	c, err := storage.NewClient(context.Background(), sdk...)
	if err != nil {
		return nil, cloud.Invalid("gs://"+bucket, err)
	}
	s := &Store{name: bucket, opts: o, bucket: c.Bucket(bucket).Retryer(storage.WithPolicy(storage.RetryNever))}
	if o.UserProject != "" {
		s.bucket = s.bucket.UserProject(o.UserProject)
	}
	return s, nil
}

// Traits names the bucket and says that one name takes about one write a second.
//
// guard:min-rewrite. A heartbeat that came sooner would be answered with 429 now
// and then, and each such answer eats into the lease.
//
//mutant:replace , MinRewrite: time.Second => , MinRewrite: 0 * time.Second
func (s *Store) Traits() store.Traits {
	return store.Traits{Name: "gs://" + s.name, MultiProcess: true, MinRewrite: time.Second}
}

func (s *Store) object(key string) *storage.ObjectHandle { return s.bucket.Object(key) }

// A version is a generation in decimal digits.

func versionOf(generation int64) store.Version {
	if generation <= 0 {
		return ""
	}
	return store.Version(strconv.FormatInt(generation, 10))
}

// generationOf is the generation that a version names. Not every version names
// one: that of another driver, or none at all, never matches anything here.
func generationOf(v store.Version) (generation int64, ok bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil && n > 0 && versionOf(n) == v
}
