package s3store

import (
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.uber.org/zap"
)

// Checksum is how the store is told what body it must have received.
type Checksum string

// The checksums. Each is computed before the request is sent and travels in a
// header; trailing checksums are never used, since some stores refuse them and
// others store them as part of the body.
const (
	// CRC32C is the default.
	CRC32C Checksum = "crc32c"
	CRC32  Checksum = "crc32"
	// NoChecksum is for stores that refuse the header.
	NoChecksum Checksum = "none"
)

// Server-side encryption.
const (
	SSES3     = "AES256"
	SSEKMS    = "aws:kms"
	SSEKMSTwo = "aws:kms:dsse"
)

// Limits of S3.
const (
	minPartSize = 5 << 20
	maxPartSize = 5 << 30
	maxParts    = 10_000
)

// Options tune a [Store]. The zero value works.
type Options struct {
	// Checksum of bodies, default [CRC32C].
	Checksum Checksum
	// UnquotedMatch sends versions in If-Match without quotes, which Ceph's RGW
	// needs to swap at all. S3 accepts both forms. It is not tried
	// automatically: a store that ignores a form it does not understand would
	// turn a swap into an overwrite.
	UnquotedMatch bool

	// PartSize of large uploads in bytes, default 8 MiB, from 5 MiB to 5 GiB.
	// Smaller bodies are one PUT. An object has at most 10,000 parts; larger
	// parts are used if UploadOptions.SizeHint asks for them.
	PartSize int64
	// PartConcurrency is how many parts of one upload are in flight, default 4.
	// An upload holds about PartSize × (PartConcurrency + 2) bytes; where the
	// SizeHint makes parts larger it is lowered, down to 1.
	PartConcurrency int
	// PartAttempts is how often a part is sent at most, default 4.
	PartAttempts int
	// Cleanup bounds what is done after a failed upload, also after its context
	// has ended: looking at the key, removing the parts. Default 10 s.
	Cleanup time.Duration

	// SSE is the server-side encryption: empty for the bucket's own, [SSES3],
	// [SSEKMS] or [SSEKMSTwo]. SSEKMSKeyID names the key of the latter two.
	SSE         string
	SSEKMSKeyID string
	// RequesterPays agrees to pay for requests to somebody else's bucket.
	RequesterPays bool
	// ExpectedBucketOwner is the account that must own the bucket.
	ExpectedBucketOwner string

	// Logger is told of what an error cannot say, such as parts left behind.
	Logger *zap.Logger
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Checksum == "" {
		v.Checksum = CRC32C
	}
	if v.PartSize == 0 {
		v.PartSize = 8 << 20
	}
	if v.PartConcurrency == 0 {
		v.PartConcurrency = 4
	}
	if v.PartAttempts == 0 {
		v.PartAttempts = 4
	}
	if v.Cleanup == 0 {
		v.Cleanup = 10 * time.Second
	}
	if v.Logger == nil {
		v.Logger = zap.NewNop()
	}
	return v, v.check()
}

func (o *Options) check() error {
	switch o.Checksum {
	case CRC32C, CRC32, NoChecksum:
	default:
		return fmt.Errorf("checksum is %s, %s or %s, not %q", CRC32C, CRC32, NoChecksum, o.Checksum)
	}
	switch o.SSE {
	case "", SSES3:
		if o.SSEKMSKeyID != "" {
			return fmt.Errorf("a KMS key needs the encryption %s or %s, not %q", SSEKMS, SSEKMSTwo, o.SSE)
		}
	case SSEKMS, SSEKMSTwo:
	default:
		return fmt.Errorf("the encryption is %s, %s or %s, not %q", SSES3, SSEKMS, SSEKMSTwo, o.SSE)
	}
	switch {
	case o.PartSize < minPartSize || o.PartSize > maxPartSize:
		return fmt.Errorf("parts have %d to %d bytes, not %d", minPartSize, int64(maxPartSize), o.PartSize)
	case o.PartConcurrency < 1 || o.PartAttempts < 1:
		return fmt.Errorf("parts in flight and attempts at a part are at least 1, not %d and %d", o.PartConcurrency, o.PartAttempts)
	case o.Cleanup < 0:
		return fmt.Errorf("the time for cleaning up must not be negative, it is %v", o.Cleanup)
	}
	return nil
}

// parts chooses the size of parts, and how many are in flight, for an upload of
// about hint bytes.
func (o *Options) parts(hint int64) (size int64, inFlight int, err error) {
	// Some room, since it is a hint: a quarter more.
	need := (hint + hint/4 + maxParts - 1) / maxParts
	switch {
	case hint < 0 || hint > maxParts*int64(maxPartSize):
		return 0, 0, fmt.Errorf("a size hint is 0 to %d bytes (%d parts of 5 GiB), not %d", maxParts*int64(maxPartSize), maxParts, hint)
	case need <= o.PartSize:
		return o.PartSize, o.PartConcurrency, nil
	}
	size = min((need+1<<20-1)>>20<<20, maxPartSize)
	return size, max(1, int(o.PartSize*int64(o.PartConcurrency)/size)), nil
}

func (o *Options) sse() (types.ServerSideEncryption, *string) {
	return types.ServerSideEncryption(o.SSE), optional(o.SSEKMSKeyID)
}

func (o *Options) payer() types.RequestPayer {
	if o.RequesterPays {
		return types.RequestPayerRequester
	}
	return ""
}

func (o *Options) owner() *string { return optional(o.ExpectedBucketOwner) }

// optional is what the SDK takes for "not said".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// directoryBucket tells a bucket of S3 Express, whose listings have no order and
// refuse StartAfter.
func directoryBucket(name string) bool { return strings.HasSuffix(name, "--x-s3") }
