package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// call is the request to which an answer belongs.
type call struct {
	op, key string
	missing error // the kind of a 404 that names neither bucket nor upload
}

// ready gets the credentials before a request is sent. Without it, missing credentials
// could not be told from an answer of the store.
func (s *Store) ready(ctx context.Context, c call) error {
	if s.credentials == nil {
		return nil // anonymous
	}
	_, err := s.credentials.Retrieve(ctx)
	if err == nil {
		return s.login.Note(nil)
	}
	return s.service.Unanswered(ctx, &store.Error{Op: c.op, Key: c.key}, "", s.login.Note(err))
}

// fail turns an error of the SDK into a [store.Error].
func (s *Store) fail(ctx context.Context, c call, err error) *store.Error {
	e := &store.Error{Op: c.op, Key: c.key}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil && answer.Response.Response != nil && answer.HTTPStatusCode() > 0 {
		var api smithy.APIError
		text := http.StatusText(answer.HTTPStatusCode())
		if errors.As(err, &api) {
			text = api.ErrorMessage()
			if e.Code = api.ErrorCode(); e.Code == "UnknownError" {
				e.Code = ""
			}
		}
		header := answer.Response.Header
		if id := header.Get("X-Amz-Request-Id"); id != "" {
			text += " (request " + id + ")"
		}
		e.Status = answer.HTTPStatusCode()
		e.Kind = kindOf(c, e.Status, e.Code)
		if (aboutCredentials[e.Code] || e.Status == http.StatusUnauthorized) && s.service.Doubt.Passes(ctx) {
			e.Kind = nil // the next attempt has others, or these are right in a moment
		}
		e.RetryAfter = cloud.RetryAfter(header)
		e.Hint = hintOf(e.Status, e.Code)
		e.Err = &cloud.ShortError{Text: text, Err: err}
		switch region := header.Get("X-Amz-Bucket-Region"); {
		case e.Code == "RequestTimeTooSkewed":
			e.Hint = "this machine's clock is wrong: the store's says " + header.Get("Date")
		case region != "" && (e.Status == http.StatusMovedPermanently || e.Status == http.StatusBadRequest):
			e.Hint = "the bucket is in another region; use region=" + region
		case e.Status/100 == 3:
			e.Hint = cloud.Redirected(e.Status, header)
		case errors.Is(e.Kind, store.ErrNoBucket):
			e.Hint = fmt.Sprintf("create the bucket %q%s, or correct the URL", *s.bucket, s.service.Where())
		}
		return e
	}
	return s.service.Unanswered(ctx, e, transportText(err), err)
}

// transientCodes are codes of answers with status 400, 401 or 403 after which the outcome is
// unknown: the body arrived damaged or too slowly, or there were too many requests; or the request may
// be right in a moment.
//
// guard:passing-refusal. That the clock is wrong or that credentials have expired says nothing about rights.
//
//mutant:replace "RequestTimeTooSkewed": true, "RequestExpired": true, =>
var transientCodes = map[string]bool{
	// A machine that resumes has an old time and old credentials. Both are set right in a moment.
	"RequestTimeTooSkewed": true, "RequestExpired": true, "ExpiredToken": true, "TokenRefreshRequired": true,
	"RequestTimeout": true, "IncompleteBody": true, "BadDigest": true, "InvalidDigest": true,
	"XAmzContentChecksumMismatch": true, "XAmzContentSHA256Mismatch": true,
	"SlowDown": true, "Throttling": true, "ThrottlingException": true, "RequestThrottled": true,
	"TooManyRequests": true, "RequestLimitExceeded": true, "BandwidthLimitExceeded": true,
	"InternalError": true, "ServiceUnavailable": true, "OperationAborted": true,
}

// aboutCredentials are codes of answers that say that the credentials are wrong, which is no question of rights.
var aboutCredentials = map[string]bool{
	"ExpiredToken": true, "TokenRefreshRequired": true, "InvalidToken": true, "InvalidAccessKeyId": true, "SignatureDoesNotMatch": true,
}

// codeKinds are the kinds of answers with status 400, which S3 also gives where other
// services have a status of their own.
var codeKinds = map[string]error{
	"InvalidToken": store.ErrDenied, "InvalidAccessKeyId": store.ErrDenied, "SignatureDoesNotMatch": store.ErrDenied, "AccessDenied": store.ErrDenied,
	"NotImplemented": store.ErrUnsupported, "NoSuchBucket": store.ErrNoBucket,
}

// kindOf classifies an answer by its status, and by its code where a status has several
// meanings. Nil means that the outcome is unknown.
func kindOf(c call, status int, code string) error {
	switch status {
	case http.StatusNotFound:
		switch code {
		case "NoSuchBucket":
			return store.ErrNoBucket
		case "NoSuchUpload":
			return nil // it was completed, perhaps by this very request
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest:
		if transientCodes[code] {
			return nil
		}
	}
	if kind := codeKinds[code]; kind != nil && status == http.StatusBadRequest {
		return kind
	}
	return cloud.KindOf(status, c.missing)
}

// maySucceed adds to the SDK's own list of errors the 4xx answers that the driver takes to be
// of unknown outcome, such as a 429 and a body that arrived damaged.
func maySucceed(err error) aws.Ternary {
	var answer *smithyhttp.ResponseError
	var api smithy.APIError
	if !errors.As(err, &answer) || !errors.As(err, &api) || answer.Response == nil || answer.HTTPStatusCode()/100 != 4 {
		return aws.UnknownTernary
	}
	if kindOf(call{missing: store.ErrNotFound}, answer.HTTPStatusCode(), api.ErrorCode()) != nil || api.ErrorCode() == "NoSuchUpload" {
		return aws.UnknownTernary
	}
	return aws.TrueTernary
}

const hintCredentials = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role provides credentials"

func hintOf(status int, code string) string {
	switch code {
	case "ExpiredToken", "TokenRefreshRequired", "RequestExpired":
		return "the credentials have expired; get new ones"
	case "InvalidAccessKeyId":
		return "this store does not know AWS_ACCESS_KEY_ID; is it the right endpoint?"
	case "SignatureDoesNotMatch":
		return "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID"
	case "InvalidToken":
		return "AWS_SESSION_TOKEN does not belong to these credentials"
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the credentials may not do this; needed are s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload, and s3:ListBucket, " +
			"without which a missing object is answered 403 too"
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return "the store cannot do this"
	}
	return ""
}

// transportText cuts off the SDK's preamble, whose fields are empty without an answer.
func transportText(err error) string {
	if send, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		return send.Err.Error()
	}
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}
