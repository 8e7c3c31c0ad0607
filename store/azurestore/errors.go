package azurestore

import (
	"context"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/fencepost/fencepost/store"
)

// call is what an answer is judged by.
type call struct {
	op, key string
	missing error // what a 404 means that does not name the container
	create  bool  // the request was a create
}

// cause is the SDK's error in fewer words.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

func invalid(name string, err error) error {
	return &store.Error{Op: "open", Key: name, Kind: store.ErrInvalid, Err: err}
}

// fail makes an error of the SDK's one of the contract.
func (s *Store) fail(ctx context.Context, c call, err error) *store.Error {
	e := &store.Error{Op: c.op, Key: c.key}
	var answer *azcore.ResponseError
	var login *loginError
	switch {
	case errors.As(err, &login):
		// No request was sent. Credentials that were there once may come back.
		e.Err = &cause{text: login.Error(), err: err}
		if !login.renewing && ctx.Err() == nil {
			e.Kind, e.Hint = store.ErrDenied, hintCredentials
		}
	case errors.As(err, &answer) && answer.StatusCode > 0:
		e.Status, e.Code = answer.StatusCode, answer.ErrorCode
		e.Kind = kindOf(c, e.Status, bloberror.Code(e.Code))
		text := http.StatusText(e.Status)
		if r := answer.RawResponse; r != nil {
			e.RetryAfter = retryAfter(r.Header)
			if says := message(r); says != "" {
				text = says
			}
			if id := r.Header.Get("X-Ms-Request-Id"); id != "" {
				text += " (request " + id + ")"
			}
		}
		e.Err = &cause{text: text, err: err}
		e.Hint = s.hintOf(e)
	case ctx.Err() != nil:
		e.Err = &cause{text: ctx.Err().Error(), err: fmt.Errorf("%w: %w", ctx.Err(), err)}
	default:
		e.Err = &cause{text: transportText(err), err: err}
		e.Hint = s.transportHint(err)
	}
	return e
}

// message is the first line of what the service says.
func message(r *http.Response) string {
	if r.Body == nil {
		return ""
	}
	// The SDK has read most answers already, and left them to be read again. That
	// to a GET it has not, nor closed.
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, 4<<10))
	if err != nil {
		return ""
	}
	var said struct{ Message string }
	if xml.Unmarshal([]byte(strings.TrimPrefix(string(b), "\ufeff")), &said) != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(said.Message), "\n")
	return strings.TrimSpace(line)
}

// transientCodes are answers with a status of 4xx that say nothing about the
// request itself.
var transientCodes = map[bloberror.Code]bool{
	bloberror.MD5Mismatch: true, bloberror.CRC64Mismatch: true, bloberror.OperationTimedOut: true,
	bloberror.ServerBusy: true, bloberror.InternalError: true,
}

// kindOf classifies an answer: by its status, and by the code where a status has
// several meanings. A nil kind means that nobody can tell what became of the
// request.
func kindOf(c call, status int, code bloberror.Code) error {
	if transientCodes[code] {
		return nil
	}
	switch status {
	case http.StatusNotModified:
		return store.ErrNotModified
	case http.StatusPreconditionFailed:
		return store.ErrPrecondition
	case http.StatusConflict:
		// guard:created. The blob of a create that was refused.
		//
		//mutant:replace c.create && => false && c.create &&
		if c.create && code == bloberror.BlobAlreadyExists {
			return store.ErrPrecondition
		}
		if code == bloberror.BlobImmutableDueToPolicy {
			return store.ErrDenied
		}
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return store.ErrRange
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return store.ErrUnsupported
	case http.StatusNotFound:
		if code == bloberror.ContainerNotFound {
			return store.ErrNoBucket
		}
		return c.missing
	case http.StatusUnauthorized, http.StatusForbidden:
		if c.create && code == bloberror.UnauthorizedBlobOverwrite {
			return store.ErrPrecondition
		}
		return store.ErrDenied
	case http.StatusBadRequest, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge:
		return store.ErrInvalid
	}
	return nil
}

func (s *Store) hintOf(e *store.Error) string {
	switch code := bloberror.Code(e.Code); {
	case errors.Is(e.Kind, store.ErrNoBucket):
		return fmt.Sprintf("create the container %q at %s, or correct the URL", s.name, s.endpoint)
	case code == bloberror.LeaseIDMissing:
		return "somebody holds a lease on this blob; nobody should"
	case code == bloberror.AuthenticationFailed:
		return "the key or signature is wrong, or has expired, or this machine's clock is wrong"
	case errors.Is(e.Kind, store.ErrDenied):
		return "the credentials may not do this; needed is the role Storage Blob Data Contributor, or a signature with rcwdl"
	}
	return ""
}

// retryAfter reads how long to wait: seconds, or a date by the store's clock.
func retryAfter(header http.Header) time.Duration {
	v := header.Get("Retry-After")
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

// transportText drops the URL, which may hold a signature.
func transportText(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

func (s *Store) transportHint(err error) string {
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing answers at " + s.endpoint + "; is the server running, and the endpoint right?"
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %q; check the account and the endpoint", dns.Name)
	case errors.As(err, &authority):
		return "the server's certificate is not trusted"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the server speaks plain http; write endpoint=http://…"
	}
	return ""
}
