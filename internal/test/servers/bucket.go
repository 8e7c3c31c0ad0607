//go:build unix

package servers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// ensureBucket tries once to create the bucket. It succeeds if the bucket exists already.
func (s *Server) ensureBucket(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if s.Kind.api != nil {
		return s.Kind.api.ensureBucket(ctx, s)
	}
	client := s.client()
	_, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(s.Bucket)})
	if err == nil {
		return nil
	}
	_, err = client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(s.Bucket)})
	if errors.As(err, new(*types.BucketAlreadyOwnedByYou)) || errors.As(err, new(*types.BucketAlreadyExists)) {
		return nil
	}
	return err
}

// impatient keeps no connection, because the server may be killed next.
var impatient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (s *Server) client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint:     aws.String(s.Endpoint),
		Region:           region,
		UsePathStyle:     true,
		Credentials:      credentials.NewStaticCredentialsProvider(s.Kind.access, s.Kind.secret, ""),
		HTTPClient:       impatient,
		RetryMaxAttempts: 1,
	})
}
