//go:build integration

package integration

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store/probe"
)

// s3Client returns the SDK's client of a server, with the credentials that Start has set.
func s3Client(t *testing.T, s *servers.Server) *s3.Client {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s3.NewFromConfig(cfg, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &s.Endpoint, true })
}

// TestBucketFeatures uses a bucket that keeps old versions, and one in which no version
// may be deleted for a day. Conditions must be about the current version, and an object
// under a delete marker must count as absent.
func TestBucketFeatures(t *testing.T) {
	s := servers.Start(t, servers.MinIO)
	client := s3Client(t, s)
	create := func(bucket string, locked bool) {
		t.Helper()
		_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket, ObjectLockEnabledForBucket: &locked})
		if err != nil {
			t.Fatal(err)
		}
	}
	create("versioned", false)
	if _, err := client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: aws.String("versioned"), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	}); err != nil {
		t.Fatal(err)
	}
	create("locked", true)
	if _, err := client.PutObjectLockConfiguration(t.Context(), &s3.PutObjectLockConfigurationInput{
		Bucket: aws.String("locked"),
		ObjectLockConfiguration: &types.ObjectLockConfiguration{
			ObjectLockEnabled: types.ObjectLockEnabledEnabled,
			Rule:              &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Mode: types.ObjectLockRetentionModeCompliance, Days: aws.Int32(1)}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{"versioned", "locked"} {
		s := *s
		s.Bucket = bucket
		t.Run(bucket, func(t *testing.T) {
			t.Parallel() // it waits for disks and pauses
			if _, err := probe.Run(t.Context(), open(t, s.URL("probe")), separate(s.URL("probe"))); err != nil {
				t.Error(err)
			}
			opts := lacks[servers.MinIO]
			opts.Quick = true
			suite(t, s.URL("storetest"), &opts)
			// The bucket does keep old versions.
			old, err := client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket})
			if err != nil || len(old.DeleteMarkers) == 0 {
				t.Errorf("%v; %d delete markers", err, len(old.DeleteMarkers))
			}
		})
	}
}
