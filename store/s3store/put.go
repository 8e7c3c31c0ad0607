package s3store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Put implements [store.Store]. It does not copy the body. The SDK takes the body from
// the transport before a call returns, so a request that was answered early or cancelled
// never sends what the caller has written there since.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := store.CheckKey("put", key); err != nil {
		return store.Info{}, err
	}
	in := &s3.PutObjectInput{Key: &key, ContentLength: aws.Int64(int64(len(body))), Body: bytes.NewReader(body)}
	call := call{op: "put", key: key, missing: store.ErrNoBucket} // without IfMatch only the bucket can be missing
	if opts.Condition() == store.IfAbsent() {
		in.IfNoneMatch = aws.String("*")
	}
	if version, match := opts.Condition().Match(); match {
		etag, sendable := etagOf(version, s.opts.UnquotedMatch)
		if !sendable {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Hint: "no object of this store has such a version"}
		}
		in.IfMatch, call.missing = &etag, store.ErrPrecondition
	}
	if err := s.ready(ctx, call); err != nil {
		return store.Info{}, err
	}
	var crc *uint32
	if opts != nil {
		crc = opts.CRC32C
	}
	out, err := s.putObject(ctx, in, crc)
	if err != nil {
		return store.Info{}, s.fail(ctx, call, err)
	}
	info := store.Info{Key: key, Version: cloud.VersionOf(out.ETag), Size: int64(len(body)), Date: date(out.ResultMetadata)}
	if info.Version == "" {
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: errors.New("s3store: the answer has no ETag")}
	}
	return info, nil
}

// putObject adds what every PUT of an object has, and sends it. The body is an
// io.ReadSeeker. Crc is its CRC-32C, nil if that is not known.
func (s *Store) putObject(ctx context.Context, in *s3.PutObjectInput, crc *uint32, more ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if crc != nil && s.opts.Checksum == CRC32C {
		in.ChecksumCRC32C = header(*crc)
	} else {
		var err error
		if in.ChecksumCRC32C, err = s.checksum(in.Body.(io.ReadSeeker)); err != nil {
			return nil, err
		}
	}
	in.Bucket = s.bucket
	in.ServerSideEncryption, in.SSEKMSKeyId = s.opts.sse()
	return s.client.PutObject(ctx, in, slices.Concat(more, s.once)...)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header returns a checksum as it is sent.
func header(sum uint32) *string {
	v := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
	return &v
}

// checksum reads a body to its end and seeks back to its beginning. It returns nil if
// bodies are sent without a checksum.
func (s *Store) checksum(body io.ReadSeeker) (*string, error) {
	if s.opts.Checksum != CRC32C {
		return nil, nil
	}
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, body); err != nil {
		return nil, err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return header(h.Sum32()), nil
}
