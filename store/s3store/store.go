package s3store

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Store is a bucket. It is safe for concurrent use.
type Store struct {
	client  *s3.Client
	bucket  *string
	service cloud.Service
	opts    Options

	credentials   aws.CredentialsProvider
	login         cloud.Login
	singleDeletes atomic.Bool // the store cannot delete many keys at once

	once, parts []func(*s3.Options)
}

var _ store.Store = (*Store)(nil)

// New returns the store of a bucket that client reaches. It does no I/O. The client's
// retries, checksum settings and use of "Expect: 100-continue" do not matter: the store
// sets them for each call.
//
// Most programs use [store.Open] with a URL, which makes the client from the environment.
func New(client *s3.Client, bucket string, opts *Options) (*Store, error) {
	if client == nil || bucket == "" {
		return nil, cloud.Invalid("s3://"+bucket, errors.New("a client and the name of a bucket are needed"))
	}
	o := opts.withDefaults()
	if err := opts.Validate(); err != nil {
		return nil, cloud.Invalid("s3://"+bucket, err)
	}
	of := client.Options()
	s := &Store{client: client, bucket: &bucket, opts: o, credentials: of.Credentials, login: cloud.Login{Driver: "s3store"}}
	s.service = cloud.Service{
		Endpoint: aws.ToString(of.BaseEndpoint), Credentials: hintCredentials,
		Host:        "the endpoint, the region, and whether the store needs path-style=true",
		Certificate: "; set AWS_CA_BUNDLE",
	}
	s.once = []func(*s3.Options){func(o *s3.Options) {
		tune(o)
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 1
	}}
	retryer := retry.NewStandard(func(r *retry.StandardOptions) {
		r.MaxAttempts = cloud.PartAttempts
		r.Retryables = append(r.Retryables, retry.IsErrorRetryableFunc(maySucceed))
	})
	s.parts = []func(*s3.Options){func(o *s3.Options) {
		tune(o)
		o.Retryer = retryer
		o.RetryMaxAttempts = 0
	}}
	return s, nil
}

// tune sets what must not depend on a configuration.
func tune(o *s3.Options) {
	// The driver computes checksums and sends them as a header. The SDK would send none,
	// or over https a trailer, which some stores refuse and one stores with the body.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	// Objects of a log carry checksums of their own, for ranges too.
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
	// Waiting for "100 Continue" saves sending a body that is refused. It costs a round
	// trip for each large body, and a second if a proxy never says it. Refusals are rare:
	// they end a term.
	o.ContinueHeaderThresholdBytes = -1
	o.APIOptions = append(slices.Clip(o.APIOptions), bound)
}

// bound adds boundAnswer to the calls of a client, which may have it already.
func bound(stack *middleware.Stack) error {
	if _, there := stack.Deserialize.Get(boundAnswer.ID()); there {
		return nil
	}
	return stack.Deserialize.Add(boundAnswer, middleware.After)
}

// guard:bounded-answer. Every answer but an object is cut at 8 MiB, and that of who gives out credentials at 256 KiB.
//
//mutant:replace isHTTP && r.Body != nil && !object => false && !object
var boundAnswer = middleware.DeserializeMiddlewareFunc("fencepost:boundAnswer", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	r, isHTTP := out.RawResponse.(*smithyhttp.Response)
	object := isHTTP && r.StatusCode/100 == 2 && awsmiddleware.GetOperationName(ctx) == "GetObject"
	if isHTTP && r.Body != nil && !object {
		if awsmiddleware.GetServiceID(ctx) == s3.ServiceID {
			r.Body = cloud.Answer(r.Body)
		} else {
			r.Body = cloud.Limited(r.Body, cloud.MaxCredentials)
		}
	}
	return out, metadata, err
})

// Traits implements [store.Store]. Cloudflare R2 and Google's S3 interface take about one
// write per second for one key.
func (s *Store) Traits() store.Traits {
	t := store.Traits{Name: "s3://" + *s.bucket, MultiProcess: true, Endpoint: s.service.Endpoint}
	if u, err := url.Parse(s.service.Endpoint); err == nil {
		host := u.Hostname()
		if strings.HasSuffix(host, ".r2.cloudflarestorage.com") || host == "storage.googleapis.com" {
			t.MinRewrite = time.Second
		}
	}
	return t
}

// date returns the store's clock in the answer.
func date(metadata middleware.Metadata) time.Time {
	r, isHTTP := awsmiddleware.GetRawResponse(metadata).(*smithyhttp.Response)
	if !isHTTP || r.Response == nil {
		return time.Time{}
	}
	t, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
