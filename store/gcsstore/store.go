package gcsstore

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Store is a bucket. It is safe for concurrent use.
type Store struct {
	objects *storage.ObjectsService
	name    string // of the bucket
	opts    Options
	doubt   *cloud.Doubt // nil if the client is not ours
}

var _ store.Store = (*Store)(nil)

// New returns the store of a bucket. It does no I/O. The client adds credentials to
// requests and must do no more; above all it must not retry.
//
// Most programs use [store.Open] with a URL, which makes the client from the environment.
func New(client *http.Client, bucket string, opts *Options) (*Store, error) {
	if client == nil || bucket == "" {
		return nil, cloud.Invalid("gs://"+bucket, errors.New("a client and the name of a bucket are needed"))
	}
	o := opts.withDefaults()
	if err := opts.Validate(); err != nil {
		return nil, cloud.Invalid("gs://"+bucket, err)
	}
	base := client.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	own := cloud.Straight(*client)
	bounded := &transport{base: base}
	own.Transport = bounded
	service, err := storage.NewService(context.Background(), option.WithHTTPClient(own))
	if err != nil {
		return nil, cloud.Invalid("gs://"+bucket, err)
	}
	if o.Endpoint != "" {
		service.BasePath = strings.TrimSuffix(o.Endpoint, "/") + "/storage/v1/"
	}
	bounded.secure = strings.HasPrefix(service.BasePath, "https://")
	return &Store{objects: service.Objects, name: bucket, opts: o}, nil
}

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits {
	// guard:min-rewrite. Google Cloud Storage takes about one write per second of one key, and its
	// driver says so in the store's traits.
	//
	//mutant:replace , MinRewrite: time.Second => , MinRewrite: 0 * time.Second
	return store.Traits{Name: "gs://" + s.name, Endpoint: s.opts.Endpoint, MultiProcess: true, MinRewrite: time.Second}
}

// infoOf returns what an answer says about an object.
func infoOf(o *storage.Object, answer googleapi.ServerResponse) store.Info {
	modified, _ := time.Parse(time.RFC3339, o.Updated) // zero if it is not said
	return store.Info{
		Key: o.Name, Version: versionOf(o.Generation), Size: int64(min(o.Size, math.MaxInt64)),
		LastModified: modified, Date: date(answer.Header),
	}
}

// date returns the store's clock in an answer.
func date(h http.Header) time.Time {
	t, _ := http.ParseTime(h.Get("Date")) // zero if it is not said
	return t
}

// versionOf returns a generation in decimal digits.
func versionOf(generation int64) store.Version {
	if generation <= 0 {
		return ""
	}
	return store.Version(strconv.FormatInt(generation, 10))
}

// generationOf returns the generation that a version names. It reports false for a version
// that no object here can have, such as an empty one or one of another driver.
func generationOf(v store.Version) (generation int64, ok bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil && n > 0 && versionOf(n) == v
}
