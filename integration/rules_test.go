//go:build integration

package integration

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store"
)

// TestT36_RulesOfABucket sets lifecycle rules on a real server and reads them back. On
// every server, a bucket without rules must report none.
func TestT36_RulesOfABucket(t *testing.T) {
	onEach(t, servers.Conforming, func(t *testing.T, s *servers.Server) {
		if rules, err := open(t, s.URL("logs/orders")).(store.ExpiryTeller).Expiries(t.Context(), ""); err != nil || len(rules) > 0 {
			t.Errorf("a bucket without rules: %+v, %v", rules, err)
		}
		if s.Kind != servers.MinIO {
			return // the others have no rules
		}
		client := s3Client(t, s)
		rule := func(id, prefix string) types.LifecycleRule {
			return types.LifecycleRule{
				ID: &id, Status: types.ExpirationStatusEnabled, Filter: &types.LifecycleRuleFilter{Prefix: &prefix},
				Expiration: &types.LifecycleExpiration{Days: aws.Int32(30)},
			}
		}
		if _, err := client.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
			Bucket:                 &s.Bucket,
			LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: []types.LifecycleRule{rule("a", "logs/"), rule("b", "other/")}},
		}); err != nil {
			t.Fatal(err)
		}
		rules, err := open(t, s.URL("logs/orders")).(store.ExpiryTeller).Expiries(t.Context(), "")
		if want := (store.Expiry{Rule: "a", What: "deletes objects after 30 days"}); err != nil || len(rules) != 1 || rules[0] != want {
			t.Errorf("%+v, %v", rules, err)
		}
	})
}
