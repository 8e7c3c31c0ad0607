package s3store

import (
	"cmp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Checksum is the kind of checksum that goes with a body, so that the store notices
// damage on the way.
type Checksum string

// The checksums. One is sent in a header. Trailing checksums are never used, since some
// stores refuse them and others store them with the body.
const (
	// CRC32C is the default.
	CRC32C Checksum = "crc32c"
	// NoChecksum is for stores that refuse the header.
	NoChecksum Checksum = "none"
)

// The values of Options.SSE.
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
	// partsInFlight is how many parts of one upload are sent at once, at most.
	partsInFlight = 4
)

// Options tune a [Store]. The zero value works. What only adds headers, such as requester pays or an
// expected owner of the bucket, is a middleware of the client that [New] gets.
type Options struct {
	// Checksum of bodies, default [CRC32C].
	Checksum Checksum
	// UnquotedMatch sends versions in If-Match without quotes. Ceph's RGW needs that for
	// any swap; S3 accepts both forms. It is not tried automatically: a store that ignores
	// the form it does not understand would turn a swap into an overwrite.
	UnquotedMatch bool

	// PartSize of large uploads in bytes, default 8 MiB, from 5 MiB to 5 GiB. Smaller
	// bodies are one PUT. Up to four parts of an upload are in flight, so it holds about six
	// times as much in memory. An object has at most 10,000 parts; if UploadOptions.SizeHint
	// asks for more, parts are larger, and fewer are in flight.
	PartSize int64

	// SSE is the server-side encryption: empty for the bucket's default, [SSES3], [SSEKMS]
	// or [SSEKMSTwo]. SSEKMSKeyID names the key of the latter two.
	SSE         string
	SSEKMSKeyID string

	// Logger gets what an error cannot say, such as parts that could not be deleted.
	Logger *zap.Logger
}

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	v := o.withDefaults()
	var faults cloud.Faults
	faults.Need(v.Checksum == CRC32C || v.Checksum == NoChecksum, "Checksum is %q; it must be %s or %s", v.Checksum, CRC32C, NoChecksum)
	kms := v.SSE == SSEKMS || v.SSE == SSEKMSTwo
	faults.Need(v.SSE == "" || v.SSE == SSES3 || kms, "SSE is %q; it must be %s, %s or %s", v.SSE, SSES3, SSEKMS, SSEKMSTwo)
	faults.Need(v.SSEKMSKeyID == "" || kms, "SSEKMSKeyID needs the encryption %s or %s, and SSE is %q", SSEKMS, SSEKMSTwo, v.SSE)
	faults.Need(v.PartSize >= minPartSize && v.PartSize <= maxPartSize, "PartSize is %d bytes; it must be %d to %d", v.PartSize, minPartSize, int64(maxPartSize))
	return faults.Err()
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Checksum = cmp.Or(v.Checksum, CRC32C)
	v.PartSize = cmp.Or(v.PartSize, 8<<20)
	v.Logger = sink.Logger(v.Logger)
	return v
}

func (o *Options) sse() (types.ServerSideEncryption, *string) {
	return types.ServerSideEncryption(o.SSE), optional(o.SSEKMSKeyID)
}

// optional returns nil for "", which the SDK takes for "not set".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// directoryBucket reports whether a bucket is one of S3 Express, whose listings have no
// order and refuse StartAfter.
func directoryBucket(name string) bool { return strings.HasSuffix(name, "--x-s3") }
