package azurestore

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// call is the request to which an answer belongs.
type call struct {
	op, key string
	missing error // the kind of a 404 that does not name the container
	create  bool  // the request was a create
}

// fail turns an error of the SDK into a [store.Error].
func (s *Store) fail(ctx context.Context, c call, err error) *store.Error {
	e := &store.Error{Op: c.op, Key: c.key}
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) || answer.StatusCode <= 0 || errors.As(err, new(*cloud.LoginError)) {
		service := cloud.Service{Endpoint: s.endpoint, Host: "the account and the endpoint", Credentials: hintCredentials, Doubt: s.doubt}
		return service.Unanswered(ctx, e, "", err)
	}
	e.Status, e.Code = answer.StatusCode, answer.ErrorCode
	e.Kind = kindOf(c, e.Status, bloberror.Code(e.Code))
	wrong := e.Status == http.StatusUnauthorized || bloberror.Code(e.Code) == bloberror.AuthenticationFailed
	if errors.Is(e.Kind, store.ErrDenied) && wrong && s.doubt.Passes(ctx) {
		e.Kind = nil // the next attempt has others, or these are right in a moment
	}
	text := http.StatusText(e.Status)
	if r := answer.RawResponse; r != nil {
		e.RetryAfter = cloud.RetryAfter(r.Header)
		if says := message(r); says != "" {
			text = says
		}
		if id := r.Header.Get("X-Ms-Request-Id"); id != "" {
			text += " (request " + id + ")"
		}
		e.Hint = cloud.Redirected(e.Status, r.Header)
	}
	e.Err = &cloud.ShortError{Text: text, Err: err}
	e.Hint = cmp.Or(e.Hint, s.hintOf(e))
	return e
}

// message returns the first line of the service's message.
func message(r *http.Response) string {
	if r.Body == nil {
		return ""
	}
	// The SDK has read most answers, and they can be read again. It has neither read nor
	// closed the answer to a GET.
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

// transientCodes are codes of 4xx answers after which the outcome is unknown.
var transientCodes = map[bloberror.Code]bool{
	bloberror.MD5Mismatch: true, bloberror.CRC64Mismatch: true, bloberror.OperationTimedOut: true,
	bloberror.ServerBusy: true, bloberror.InternalError: true,
}

// kindOf classifies an answer by its status, and by its code where a status has several
// meanings. Nil means that the outcome is unknown.
func kindOf(c call, status int, code bloberror.Code) error {
	if transientCodes[code] {
		return nil
	}
	switch status {
	case http.StatusConflict:
		// guard:created. A create that Azure answers with the 409 "blob already exists" is refused.
		//
		//mutant:replace c.create && => false && c.create &&
		if c.create && code == bloberror.BlobAlreadyExists {
			return store.ErrPrecondition
		}
		if code == bloberror.BlobImmutableDueToPolicy {
			return store.ErrDenied
		}
	case http.StatusNotFound:
		if code == bloberror.ContainerNotFound {
			return store.ErrNoBucket
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		if c.create && code == bloberror.UnauthorizedBlobOverwrite {
			return store.ErrPrecondition
		}
	}
	return cloud.KindOf(status, c.missing)
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
