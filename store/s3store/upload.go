// Nothing else imports the manager, so that its successor, which is not 1.0
// yet, can take its place by changing this file.

//nolint:staticcheck // SA1019: feature/s3/manager is deprecated in favour of feature/s3/transfermanager, whose interface still changes (0.x)
package s3store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// mark is the name in an object's metadata under which the random id of its upload stands.
const mark = "fencepostupload"

// Upload implements [store.Store]. A body shorter than Options.PartSize is one PUT; a
// longer one is a multipart upload.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	if err := store.CheckKey("upload", key); err != nil {
		return store.Info{}, err
	}
	o := *cmp.Or(opts, &store.UploadOptions{})
	partSize, inFlight, err := cloud.Parts(o.SizeHint, s.opts.PartSize, partsInFlight, maxParts, maxPartSize)
	if err != nil {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Kind: store.ErrInvalid, Err: err}
	}
	u := &upload{s: s, call: call{op: "upload", key: key, missing: store.ErrNoBucket}, mark: rand.Text(), body: &source{ended: ctx.Err, r: body, limit: partSize * maxParts}}
	if err := s.ready(ctx, u.call); err != nil {
		return store.Info{}, err
	}
	uploader := manager.NewUploader(u, func(m *manager.Uploader) {
		m.PartSize, m.Concurrency = partSize, inFlight
		m.LeavePartsOnError = true // settle deletes them when it knows more
		m.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	})
	in := &s3.PutObjectInput{Bucket: s.bucket, Key: &key, Body: u.body, Metadata: map[string]string{mark: u.mark}}
	in.ServerSideEncryption, in.SSEKMSKeyId = s.opts.sse()
	if o.Create {
		in.IfNoneMatch = aws.String("*")
	}
	out, err := uploader.Upload(ctx, in)
	if err != nil {
		return u.settle(ctx, err)
	}
	info := store.Info{Key: key, Version: cloud.VersionOf(out.ETag), Size: u.body.n, Date: u.date}
	if u.id != "" || info.Version == "" {
		// Not every store answers a completion with the ETag that it shows afterwards.
		// One request more costs little beside all the parts.
		if shown, _ := u.look(ctx); shown.Version != "" {
			return shown, nil
		}
	}
	if info.Version == "" {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Err: errors.New("s3store: the answer has no ETag")}
	}
	return info, nil
}

// source is the caller's body. It counts bytes and keeps the error of a Read. It is only
// a Reader, since the manager would seek in anything that offers Seek, even a pipe.
type source struct {
	ended    func() error // the Err of the upload's context
	r        io.Reader
	n, limit int64
	err      error
	tooLarge bool
}

func (b *source) Read(p []byte) (int, error) {
	if err := b.ended(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	switch {
	case b.n > b.limit:
		b.tooLarge = true
		return 0, errTooLarge
	case err != nil && err != io.EOF:
		b.err = err
	}
	return n, err
}

var errTooLarge = errors.New("s3store: too many parts")

// upload is the manager's client. It sends each request once, except parts, and records
// how far the upload got.
type upload struct {
	s    *Store
	call call
	body *source

	mark   string // the random id in the object's metadata
	id     string // of the multipart upload, once begun
	sent   bool   // the request that makes the object visible was sent
	date   time.Time
	closed error // what that request failed with
}

var errNoUploadID = errors.New("s3store: the store began an upload without an id")

func (u *upload) PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	u.sent = true
	out, err := u.s.putObject(ctx, in, nil, opts...)
	if u.closed = err; err == nil {
		u.date = date(out.ResultMetadata)
	}
	return out, err
}

func (u *upload) CreateMultipartUpload(ctx context.Context, in *s3.CreateMultipartUploadInput, opts ...func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error) {
	if u.s.opts.Checksum == CRC32C {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	out, err := u.s.client.CreateMultipartUpload(ctx, in, slices.Concat(opts, u.s.once)...)
	if err != nil {
		return nil, err
	}
	if u.id = aws.ToString(out.UploadId); u.id == "" {
		return nil, errNoUploadID
	}
	return out, nil
}

func (u *upload) UploadPart(ctx context.Context, in *s3.UploadPartInput, opts ...func(*s3.Options)) (*s3.UploadPartOutput, error) {
	sum, err := u.s.checksum(in.Body.(io.ReadSeeker))
	if err != nil {
		return nil, err
	}
	in.ChecksumCRC32C, in.ChecksumAlgorithm = sum, ""
	out, err := u.s.client.UploadPart(ctx, in, slices.Concat(opts, u.s.parts)...)
	if err != nil {
		return nil, err
	}
	// The completion repeats the sum, which not every store returns, and no other one.
	out.ChecksumCRC32C, out.ChecksumCRC32 = sum, nil
	return out, nil
}

func (u *upload) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput, opts ...func(*s3.Options)) (*s3.CompleteMultipartUploadOutput, error) {
	u.sent = true
	out, err := u.s.client.CompleteMultipartUpload(ctx, in, slices.Concat(opts, u.s.once)...)
	if u.closed = err; err == nil {
		u.date = date(out.ResultMetadata)
	}
	return out, err
}

// AbortMultipartUpload is never called by the manager: LeavePartsOnError.
func (u *upload) AbortMultipartUpload(ctx context.Context, in *s3.AbortMultipartUploadInput, opts ...func(*s3.Options)) (*s3.AbortMultipartUploadOutput, error) {
	return u.s.client.AbortMultipartUpload(ctx, in, slices.Concat(opts, u.s.once)...)
}

// settle finds out the outcome of an upload that ended with an error, and deletes its
// parts if it failed.
func (u *upload) settle(ctx context.Context, err error) (store.Info, error) {
	failed := u.error(ctx, err)
	ctx, cancel := cloud.CleanUp(ctx)
	defer cancel()
	unknown := u.sent && store.OutcomeOf(failed) == store.Unknown
	if unknown {
		if info, found := u.find(ctx); found {
			return info, nil
		}
	}
	if u.id == "" {
		return store.Info{}, failed
	}
	left := u.s.abortUpload(ctx, u.call.key, u.id)
	if unknown {
		// The completion may have landed between the first read and the abort. After the
		// abort it cannot: the upload that it would complete is gone.
		if info, found := u.find(ctx); found {
			return info, nil
		}
	}
	if left != nil {
		u.s.opts.Logger.Warn("s3store: parts of a failed upload are left behind",
			zap.String("bucket", *u.s.bucket), zap.String("key", u.call.key), zap.String("upload", u.id), zap.Error(left))
		failed.Hint = fmt.Sprintf("parts may be left behind under upload %s: %v", u.id, left)
	}
	return store.Info{}, failed
}

func (u *upload) error(ctx context.Context, err error) *store.Error {
	if u.body.tooLarge {
		return &store.Error{Op: u.call.op, Key: u.call.key, Kind: store.ErrTooLarge, Hint: fmt.Sprintf(
			"an upload has at most %d parts, here of %d bytes; say the size beforehand (writer.ExpectedSize, UploadOptions.SizeHint), or raise Options.PartSize", maxParts, u.body.limit/maxParts)}
	}
	if u.body.err != nil {
		return &store.Error{Op: u.call.op, Key: u.call.key, Err: fmt.Errorf("s3store: reading the body: %w", u.body.err)}
	}
	return u.s.fail(ctx, u.call, cmp.Or(u.closed, err))
}

// find returns the object, if it is there, has the right size, and is of this upload.
func (u *upload) find(ctx context.Context) (store.Info, bool) {
	info, own := u.look(ctx)
	return info, own && info.Version != ""
}

// look returns the object, if it is there and has the right size. It reports whether this upload has made it.
func (u *upload) look(ctx context.Context) (info store.Info, own bool) {
	out, err := u.s.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: u.s.bucket, Key: &u.call.key,
	}, u.s.once...)
	if err != nil || aws.ToInt64(out.ContentLength) != u.body.n {
		return store.Info{}, false
	}
	// guard:own-upload. An upload whose last request has an unknown outcome counts as uploaded only if
	// the object has this upload's size, and its random id in the metadata.
	//
	//mutant:replace own = false => own = true
	own = false
	for name, value := range out.Metadata {
		own = own || strings.EqualFold(name, mark) && value == u.mark
	}
	return store.Info{
		Key: u.call.key, Version: cloud.VersionOf(out.ETag), Size: u.body.n,
		LastModified: aws.ToTime(out.LastModified), Date: date(out.ResultMetadata),
	}, own
}
