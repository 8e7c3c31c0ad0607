package s3store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencepost/fencepost/store"
)

var _ store.ExpiryTeller = (*Store)(nil)

// Expiries implements [store.ExpiryTeller], with GetBucketLifecycleConfiguration.
func (s *Store) Expiries(ctx context.Context, prefix string) ([]store.Expiry, error) {
	call := call{op: "lifecycle", key: prefix, missing: store.ErrNoBucket}
	if err := s.ready(ctx, call); err != nil {
		return nil, err
	}
	out, err := s.client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{
		Bucket: s.bucket,
	}, s.once...)
	if err != nil {
		failed := s.fail(ctx, call, err)
		if failed.Code == "NoSuchLifecycleConfiguration" || errors.Is(failed, store.ErrUnsupported) {
			return nil, nil
		}
		return nil, failed
	}
	var found []store.Expiry
	for _, r := range out.Rules {
		of, tagged := scope(r)
		what := effects(r)
		if r.Status != types.ExpirationStatusEnabled || tagged || len(what) == 0 {
			continue
		}
		if strings.HasPrefix(of, prefix) || strings.HasPrefix(prefix, of) {
			found = append(found, store.Expiry{Rule: aws.ToString(r.ID), Prefix: of, What: strings.Join(what, ", ")})
		}
	}
	return found, nil
}

// scope returns the prefix of the keys to which a rule applies, and whether it applies
// only to objects with tags, which this driver never sets. A rule for objects of some
// size may apply to any object.
func scope(r types.LifecycleRule) (prefix string, tagged bool) {
	prefix = aws.ToString(r.Prefix) //nolint:staticcheck // SA1019: rules made before there were filters have it, and are answered so
	if f := r.Filter; f != nil {
		if f.Prefix != nil {
			prefix = *f.Prefix
		}
		tagged = f.Tag != nil
		if f.And != nil {
			prefix, tagged = aws.ToString(f.And.Prefix), len(f.And.Tags) > 0
		}
	}
	return prefix, tagged
}

// effects returns what a rule does to current objects.
func effects(r types.LifecycleRule) []string {
	var what []string
	when := func(days *int32, date *time.Time) string {
		if date != nil {
			return "from " + date.UTC().Format(time.DateOnly) + " on"
		}
		if aws.ToInt32(days) == 1 {
			return "after a day"
		}
		return fmt.Sprintf("after %d days", aws.ToInt32(days))
	}
	if e := r.Expiration; e != nil && (aws.ToInt32(e.Days) > 0 || e.Date != nil) {
		what = append(what, "deletes objects "+when(e.Days, e.Date))
	}
	for _, t := range r.Transitions {
		// Objects of the other classes are read like any other's.
		if t.StorageClass == types.TransitionStorageClassGlacier || t.StorageClass == types.TransitionStorageClassDeepArchive {
			what = append(what, fmt.Sprintf("moves objects to %s %s", t.StorageClass, when(t.Days, t.Date)))
		}
	}
	return what
}
