package s3store

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

var _ store.UploadAborter = (*Store)(nil)

// AbortUploads implements [store.UploadAborter], in one request for 1,000 incomplete
// uploads and one for each that it ends.
func (s *Store) AbortUploads(ctx context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	if err := store.CheckPrefix("abort", prefix); err != nil {
		return 0, err
	}
	call := call{op: "abort", key: prefix, missing: store.ErrNoBucket}
	in := &s3.ListMultipartUploadsInput{
		Bucket: s.bucket, Prefix: optional(prefix), EncodingType: types.EncodingTypeUrl,
	}
	aborted := 0
	var pages cloud.Pages
	for {
		if err := s.ready(ctx, call); err != nil {
			return aborted, err
		}
		out, err := s.client.ListMultipartUploads(ctx, in, s.once...)
		if err != nil {
			return aborted, s.fail(ctx, call, err)
		}
		now := date(out.ResultMetadata)
		for _, m := range out.Uploads {
			key, id := decoded(out.EncodingType, m.Key), aws.ToString(m.UploadId)
			ours := strings.HasPrefix(key, prefix) && id != "" && store.CheckKey("abort", key) == nil
			if !ours || !doomed(store.Info{Key: key, LastModified: aws.ToTime(m.Initiated), Date: now}) {
				continue
			}
			if err := s.abortUpload(ctx, key, id); err != nil {
				return aborted, err
			}
			aborted++
		}
		first := ""
		if len(out.Uploads) > 0 {
			first = aws.ToString(out.Uploads[0].Key) + "\x00" + aws.ToString(out.Uploads[0].UploadId)
		}
		if err := pages.Next(first); err != nil {
			return aborted, &store.Error{Op: call.op, Key: prefix, Err: err}
		}
		key, id := decoded(out.EncodingType, out.NextKeyMarker), aws.ToString(out.NextUploadIdMarker)
		switch {
		case !aws.ToBool(out.IsTruncated):
			return aborted, nil
		case key == "" || key == aws.ToString(in.KeyMarker) && id == aws.ToString(in.UploadIdMarker):
			return aborted, &store.Error{Op: call.op, Key: prefix, Err: cloud.ErrPaging}
		}
		in.KeyMarker, in.UploadIdMarker = &key, optional(id)
	}
}

// abortUpload ends one upload. An upload that is gone is no error.
func (s *Store) abortUpload(ctx context.Context, key, id string) error {
	_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: s.bucket, Key: &key, UploadId: &id,
	}, s.once...)
	if err == nil {
		return nil
	}
	if failed := s.fail(ctx, call{op: "abort", key: key, missing: store.ErrNoBucket}, err); failed.Code != "NoSuchUpload" {
		return failed
	}
	return nil
}
