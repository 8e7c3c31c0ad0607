package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"google.golang.org/api/googleapi"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// call is the request to which an answer belongs.
type call struct {
	op, key string
	missing error // the kind of a 404 that does not name the bucket
}

// fail turns an error of the SDK into a [store.Error].
func (s *Store) fail(ctx context.Context, c call, err error) *store.Error {
	e := &store.Error{Op: c.op, Key: c.key}
	var answer *googleapi.Error
	if errors.As(err, &answer) && answer.Code > 0 {
		answer = parsed(answer)
		text := answerText(answer)
		if len(answer.Errors) > 0 {
			e.Code = answer.Errors[0].Reason
		}
		e.Status = answer.Code
		e.Kind = kindOf(c, e.Status, e.Code, text)
		if e.Status == http.StatusUnauthorized && s.doubt.Passes(ctx) {
			e.Kind = nil // the next attempt has another token, or this one is right in a moment
		}
		e.RetryAfter = cloud.RetryAfter(answer.Header)
		e.Err = &cloud.ShortError{Text: text, Err: err}
		switch e.Hint = cloud.Redirected(e.Status, answer.Header); {
		case errors.Is(e.Kind, store.ErrNoBucket):
			e.Hint = fmt.Sprintf("create the bucket %q%s, or correct the URL", s.name, s.service().Where())
		case errors.Is(e.Kind, store.ErrDenied):
			e.Hint = "the credentials may not do this; needed are storage.objects.get, create, delete (also to replace an object) and list: roles/storage.objectUser"
		}
		return e
	}
	return s.service().Unanswered(ctx, e, "", err)
}

// service describes the service for errors.
func (s *Store) service() *cloud.Service {
	return &cloud.Service{Endpoint: s.opts.Endpoint, Host: "the endpoint", Credentials: hintCredentials, Doubt: s.doubt}
}

// parsed parses the answer to a download, which the SDK does not.
func parsed(answer *googleapi.Error) *googleapi.Error {
	if answer.Message != "" || len(answer.Errors) > 0 || answer.Body == "" {
		return answer
	}
	again := &http.Response{StatusCode: answer.Code, Header: answer.Header, Body: io.NopCloser(strings.NewReader(answer.Body))}
	var read *googleapi.Error
	if errors.As(googleapi.CheckResponse(again), &read) {
		return read
	}
	return answer
}

// answerText returns the message of the service, or the beginning of what a proxy says.
func answerText(answer *googleapi.Error) string {
	if answer.Message != "" {
		return answer.Message
	}
	const most = 200
	text := strings.TrimSpace(answer.Body)
	if len(text) > most {
		text = text[:most] + "…"
	}
	if text == "" || !utf8.ValidString(text) {
		return http.StatusText(answer.Code)
	}
	return text
}

// transientReasons are reasons of a 403 that means "too many requests".
var transientReasons = map[string]bool{
	"rateLimitExceeded": true, "userRateLimitExceeded": true, "quotaExceeded": true, "backendError": true,
}

// kindOf classifies an answer by its status, and by reason and text where a status has
// several meanings. Nil means that the outcome is unknown.
func kindOf(c call, status int, reason, text string) error {
	switch {
	case status == http.StatusNotFound && strings.Contains(text, "bucket does not exist"):
		return store.ErrNoBucket // the reason is notFound for both
	case status == http.StatusForbidden && transientReasons[reason]:
		return nil
	case status == http.StatusBadRequest && strings.Contains(text, "match calculated"):
		// The body did not arrive as it was sent: "Provided CRC32C … doesn't match
		// calculated CRC32C …".
		return nil
	}
	return cloud.KindOf(status, c.missing)
}
