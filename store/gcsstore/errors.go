package gcsstore

import (
	"context"
	"crypto/x509"
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
	"unicode/utf8"

	"google.golang.org/api/googleapi"

	"github.com/fencepost/fencepost/store"
)

// call is what an answer is judged by.
type call struct {
	op, key string
	missing error // what a 404 means that does not name the bucket
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
	var answer *googleapi.Error
	if errors.As(err, &answer) && answer.Code > 0 {
		answer = parsed(answer)
		text := answerText(answer)
		if len(answer.Errors) > 0 {
			e.Code = answer.Errors[0].Reason
		}
		e.Status = answer.Code
		e.Kind = kindOf(c, e.Status, e.Code, text)
		e.RetryAfter = retryAfter(answer.Header)
		e.Err = &cause{text: text, err: err}
		switch {
		case errors.Is(e.Kind, store.ErrNoBucket):
			e.Hint = fmt.Sprintf("create the bucket %q%s, or correct the URL", s.name, s.where())
		case errors.Is(e.Kind, store.ErrDenied):
			e.Hint = "the credentials may not do this; needed are storage.objects.get, create, delete (also to replace an object) and list: roles/storage.objectUser"
		}
		return e
	}
	var login *loginError
	switch {
	case ctx.Err() != nil:
		e.Err = &cause{text: ctx.Err().Error(), err: fmt.Errorf("%w: %w", ctx.Err(), err)}
	case errors.As(err, &login):
		// No request was sent. Credentials that were there once may come back.
		e.Err = &cause{text: login.Error(), err: err}
		if !login.renewing {
			e.Kind, e.Hint = store.ErrDenied, hintCredentials
		}
	default:
		e.Err = &cause{text: transportText(err), err: err}
		e.Hint = s.transportHint(err)
	}
	return e
}

// parsed reads the answer to a download, which the SDK leaves as it came.
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

// answerText is what the service says, or the beginning of what something
// between here and there says.
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

// transientReasons come with 403 and say that there were too many requests.
var transientReasons = map[string]bool{
	"rateLimitExceeded": true, "userRateLimitExceeded": true, "quotaExceeded": true, "backendError": true,
}

// kindOf classifies an answer: by its status, and by reason and text where a
// status has several meanings. A nil kind means that nobody can tell what became
// of the request.
func kindOf(c call, status int, reason, text string) error {
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
		// The reason is notFound for both.
		if strings.Contains(text, "bucket does not exist") {
			return store.ErrNoBucket
		}
		return c.missing
	case http.StatusUnauthorized:
		return store.ErrDenied
	case http.StatusForbidden:
		if transientReasons[reason] {
			return nil
		}
		return store.ErrDenied
	case http.StatusBadRequest:
		// The body did not arrive as it was sent: "Provided CRC32C … doesn't match
		// calculated CRC32C …".
		if strings.Contains(text, "match calculated") {
			return nil
		}
		return store.ErrInvalid
	case http.StatusMovedPermanently, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge:
		return store.ErrInvalid
	}
	return nil
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

// transportText drops the URL, whose query is long and says nothing.
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
		return "nothing answers" + s.where() + "; is the server running, and the endpoint right?"
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %q; check the endpoint", dns.Name)
	case errors.As(err, &authority):
		return "the server's certificate is not trusted"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the server speaks plain http; write endpoint=http://…"
	}
	return ""
}

// where names the endpoint if it is not Google's.
func (s *Store) where() string {
	if s.opts.Endpoint == "" {
		return ""
	}
	return " at " + s.opts.Endpoint
}
