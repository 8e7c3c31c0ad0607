package s3store

import (
	"context"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// found are the credentials that the AWS environment gives. The SDK reads files once. So if the store says that credentials
// are wrong, somebody may have put new ones there meanwhile, as when a machine resumes.
type found struct {
	load func(context.Context) (aws.CredentialsProvider, error)
	now  atomic.Pointer[aws.CredentialsProvider]
}

// Retrieve implements [aws.CredentialsProvider].
func (f *found) Retrieve(ctx context.Context) (aws.Credentials, error) {
	return (*f.now.Load()).Retrieve(ctx)
}

// look looks for credentials again. It reports whether they are others than before, and takes them.
func (f *found) look(ctx context.Context) bool {
	next, err := f.load(ctx)
	if err != nil || next == nil {
		return false
	}
	after, err := next.Retrieve(ctx)
	if err != nil {
		return false
	}
	before, err := f.Retrieve(ctx)
	if err == nil && before.AccessKeyID == after.AccessKeyID && before.SecretAccessKey == after.SecretAccessKey && before.SessionToken == after.SessionToken {
		return false
	}
	f.now.Store(&next)
	return true
}
