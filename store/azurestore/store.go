package azurestore

import (
	"context"
	"errors"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Store is a container. It is safe for concurrent use.
type Store struct {
	client   *container.Client
	name     string // of the container
	endpoint string // of the account, for errors
	opts     Options
	doubt    *cloud.Doubt // nil if the client is not ours
}

var _ store.Store = (*Store)(nil)

// New returns the store of a container that client reaches. It does no I/O. Make the
// client with [ClientOptions], so that no answer is read without bound. Its retries do
// not matter: the store sets them for each call.
//
// Most programs use [store.Open] with a URL, which makes the client from the environment.
func New(client *container.Client, opts *Options) (*Store, error) {
	if client == nil {
		return nil, cloud.Invalid("az://", errors.New("a client of a container is needed"))
	}
	// What follows ? may be a signature.
	u, err := url.Parse(client.URL())
	if err != nil || u.Host == "" {
		return nil, cloud.Invalid("az://", errors.New("the client has no URL"))
	}
	s := &Store{client: client, name: path.Base(u.Path)}
	s.endpoint = u.Scheme + "://" + u.Host + strings.TrimSuffix(path.Dir(u.Path), "/")
	s.opts = opts.withDefaults()
	if err := opts.Validate(); err != nil {
		return nil, cloud.Invalid("az://"+s.name, err)
	}
	return s, nil
}

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits {
	return store.Traits{Name: "az://" + s.name, Endpoint: s.endpoint, MultiProcess: true}
}

// once returns the context for a call that sends one request.
//
// guard:one-attempt. The SDK's retries are off, so a call sends one request.
//
//mutant:replace policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1}) => policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: 3, RetryDelay: 1, MaxRetryDelay: 2})
func once(ctx context.Context) context.Context {
	return policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
}

// etagOf returns the header for a version. It reports false for a version that no blob can
// have, such as an empty one or one of another driver, and for "*", which would match any
// blob.
func etagOf(v store.Version) (etag azcore.ETag, sendable bool) {
	bad := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' }
	if v == "" || v == "*" || strings.ContainsFunc(string(v), bad) {
		return "", false
	}
	return azcore.ETag(`"` + string(v) + `"`), true
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
