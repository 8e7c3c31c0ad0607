package s3store

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/fencepost/fencepost/clock"
)

// found are the credentials that the AWS environment gives. The SDK reads files once. So if the store says that credentials
// are wrong, somebody may have put new ones there meanwhile, as when a machine resumes.
type found struct {
	load func(context.Context) (aws.CredentialsProvider, error)

	mu  sync.Mutex
	now aws.CredentialsProvider

	renewing sync.Mutex    // held while it looks, which may take requests: nobody else waits for that
	last     clock.Instant // when others were found, 0 if never; guarded by renewing
}

// Retrieve implements [aws.CredentialsProvider].
func (f *found) Retrieve(ctx context.Context) (aws.Credentials, error) {
	f.mu.Lock()
	now := f.now
	f.mu.Unlock()
	return now.Retrieve(ctx)
}

// renewed looks for credentials again. It reports whether they are others than before, or were found to be others a moment ago,
// by a request that failed at the same time.
func (f *found) renewed(ctx context.Context) bool {
	f.renewing.Lock()
	defer f.renewing.Unlock()
	if f.last != 0 && clock.System().Now().Sub(f.last) < 10*time.Second {
		return true
	}
	next, err := f.load(ctx)
	if err != nil || next == nil {
		return false
	}
	before, err := f.Retrieve(ctx)
	if err != nil {
		return false
	}
	after, err := next.Retrieve(ctx)
	if err != nil || before.AccessKeyID == after.AccessKeyID && before.SecretAccessKey == after.SecretAccessKey && before.SessionToken == after.SessionToken {
		return false
	}
	f.mu.Lock()
	f.now = next
	f.mu.Unlock()
	f.last = clock.System().Now()
	return true
}
