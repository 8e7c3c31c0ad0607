package s3store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencepost/fencepost/store"
)

// call is what an answer is judged by.
type call struct {
	op, key string
	missing error // what a 404 means that names neither bucket nor upload
}

// cause is the SDK's error in fewer words.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

// ready looks for credentials, so that their absence is told from an answer of
// the store, and without a request.
func (s *Store) ready(ctx context.Context, c call) error {
	if s.credentials == nil {
		return nil // anonymous
	}
	_, err := s.credentials.Retrieve(ctx)
	switch {
	case err == nil:
		s.hadCredentials.Store(true)
		return nil
	case ctx.Err() != nil:
		return &store.Error{Op: c.op, Key: c.key, Err: canceled(ctx, err)}
	case s.hadCredentials.Load():
		// They were there and cannot be renewed just now. That may pass, and
		// nothing was sent.
		return &store.Error{Op: c.op, Key: c.key, Err: fmt.Errorf("s3store: renewing the credentials: %w", err)}
	}
	return &store.Error{Op: c.op, Key: c.key, Kind: store.ErrDenied, Err: fmt.Errorf("s3store: no credentials: %w", err), Hint: hintCredentials}
}

// fail makes an error of the SDK's one of the contract.
func (s *Store) fail(ctx context.Context, c call, err error) error {
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
		e.RetryAfter = retryAfter(header)
		e.Hint = hintOf(e.Status, e.Code)
		e.Err = &cause{text: text, err: err}
		switch region := header.Get("X-Amz-Bucket-Region"); {
		case e.Code == "RequestTimeTooSkewed":
			e.Hint = "this machine's clock is wrong: the store's says " + header.Get("Date")
		case region != "" && (e.Status == http.StatusMovedPermanently || e.Status == http.StatusBadRequest):
			e.Hint = "the bucket is in another region; use region=" + region
		case errors.Is(e.Kind, store.ErrNoBucket):
			e.Hint = fmt.Sprintf("create the bucket %q%s, or correct the URL", *s.bucket, s.where())
		}
		return e
	}
	if ctx.Err() != nil {
		e.Err = canceled(ctx, err)
		return e
	}
	e.Err = &cause{text: transportText(err), err: err}
	e.Hint = s.transportHint(err)
	return e
}

func canceled(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return &cause{text: ctx.Err().Error(), err: err}
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// transientCodes are answers with a status of 4xx that say nothing about the
// request itself: the body did not arrive as it was sent, or too slowly, or
// there were too many requests.
var transientCodes = map[string]bool{
	"RequestTimeout": true, "IncompleteBody": true, "BadDigest": true, "InvalidDigest": true,
	"XAmzContentChecksumMismatch": true, "XAmzContentSHA256Mismatch": true,
	"SlowDown": true, "Throttling": true, "ThrottlingException": true, "RequestThrottled": true,
	"TooManyRequests": true, "RequestLimitExceeded": true, "BandwidthLimitExceeded": true,
	"InternalError": true, "ServiceUnavailable": true, "OperationAborted": true,
}

// codeKinds tell answers with 400, which S3 gives for much that others have a
// status for.
var codeKinds = map[string]error{
	"ExpiredToken": store.ErrDenied, "InvalidToken": store.ErrDenied, "TokenRefreshRequired": store.ErrDenied,
	"InvalidAccessKeyId": store.ErrDenied, "SignatureDoesNotMatch": store.ErrDenied, "AccessDenied": store.ErrDenied,
	"RequestTimeTooSkewed": store.ErrDenied, "RequestExpired": store.ErrDenied,
	"NotImplemented": store.ErrUnsupported, "NoSuchBucket": store.ErrNoBucket,
}

// kindOf classifies an answer: by its status, and by the code where a status
// has several meanings. A nil kind means that nobody can tell what became of the
// request.
func kindOf(c call, status int, code string) error {
	switch status {
	case http.StatusNotModified:
		return store.ErrNotModified
	case http.StatusPreconditionFailed:
		return store.ErrPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		return store.ErrRange
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return store.ErrUnsupported
	case http.StatusNotFound:
		return missingKind(c, code)
	case http.StatusUnauthorized, http.StatusForbidden:
		if transientCodes[code] {
			return nil
		}
		return store.ErrDenied
	case http.StatusBadRequest:
		if transientCodes[code] {
			return nil
		}
		if kind := codeKinds[code]; kind != nil {
			return kind
		}
		return store.ErrInvalid
	case http.StatusMovedPermanently, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge:
		return store.ErrInvalid
	}
	return nil
}

// missingKind tells what a 404 says is missing.
func missingKind(c call, code string) error {
	switch code {
	case "NoSuchBucket":
		return store.ErrNoBucket
	case "NoSuchUpload":
		return nil // completed, perhaps by the very request that got no answer
	}
	return c.missing
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

// retryAfter reads how long to wait: seconds, or a date by the store's clock.
func retryAfter(header http.Header) time.Duration {
	v := header.Get("Retry-After")
	if v == "" {
		return 0
	}
	if n, err := strconv.Atoi(v); err == nil {
		return max(0, time.Duration(min(n, 86400))*time.Second)
	}
	until, err := http.ParseTime(v)
	now, err2 := http.ParseTime(header.Get("Date"))
	if err != nil || err2 != nil {
		return 0
	}
	return max(0, until.Sub(now))
}

// transportText drops the SDK's preamble, whose fields are empty without an
// answer.
func transportText(err error) string {
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) {
		return send.Err.Error()
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

func (s *Store) transportHint(err error) string {
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing answers" + s.where() + "; is the server running, and the endpoint right?"
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %q; check the endpoint, the region, and whether the store needs path-style=true", dns.Name)
	case errors.As(err, &authority):
		return "the server's certificate is not trusted; set AWS_CA_BUNDLE"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the server speaks plain http; write endpoint=http://…"
	}
	return ""
}

// where names the endpoint if it is not AWS itself.
func (s *Store) where() string {
	if s.endpoint == "" {
		return ""
	}
	return " at " + s.endpoint
}
