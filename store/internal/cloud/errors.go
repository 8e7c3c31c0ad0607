package cloud

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/store"
)

// ShortError is another error in fewer words.
type ShortError struct {
	Text string
	Err  error // may be nil
}

func (c *ShortError) Error() string { return c.Text }

// Unwrap returns the other error.
func (c *ShortError) Unwrap() error { return c.Err }

// KindOf classifies an answer by its status alone; missing is the kind of a 404. Nil means
// that the outcome is unknown.
func KindOf(status int, missing error) error {
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
		return missing
	case http.StatusUnauthorized, http.StatusForbidden:
		return store.ErrDenied
	case http.StatusBadRequest, http.StatusMovedPermanently, http.StatusPermanentRedirect, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
		http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge:
		return store.ErrInvalid
	}
	return nil
}

// Redirected says where an answer leads, if it is a redirect.
func Redirected(status int, header http.Header) string {
	to, err := url.Parse(header.Get("Location"))
	if status/100 != 3 || err != nil || to.Host == "" {
		return ""
	}
	return fmt.Sprintf("the endpoint redirects to %.200q, and redirects are not followed; if it goes on, name that endpoint", to.Scheme+"://"+to.Host)
}

// RetryAfter returns how long the store asks to wait: seconds, or a date by its own clock.
func RetryAfter(header http.Header) time.Duration {
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

// Service describes a service for the errors of requests that it does not answer.
type Service struct {
	Endpoint    string // empty for the cloud's own
	Host        string // what to check if the host's name is unknown
	Certificate string // what to do if the certificate is not trusted; may be empty
	Credentials string // where credentials come from
	Doubt       *Doubt // of the credentials; may be nil
}

// Unanswered fills in e, the error of a request that got no answer. Text is the SDK's
// error in fewer words; by default the URL is left out, which may hold a signature.
func (s *Service) Unanswered(ctx context.Context, e *store.Error, text string, err error) *store.Error {
	var login *LoginError
	switch {
	case ctx.Err() != nil:
		e.Err = Cancelled(ctx, err)
		return e
	case errors.As(err, &login):
		// No request was sent. If there were credentials before, they may come back.
		e.Err = &ShortError{Text: login.Error(), Err: err}
		if !login.Renewing {
			e.Kind, e.Hint = store.ErrDenied, s.Credentials
		} else {
			s.Doubt.Passes(ctx) // the next attempt may have others
		}
		return e
	}
	var u *url.Error
	switch {
	case text != "":
	case errors.As(err, &u):
		text = u.Err.Error()
	default:
		text = err.Error()
	}
	e.Err, e.Hint = &ShortError{Text: text, Err: err}, s.hint(err)
	return e
}

// Cancelled returns the error of a request whose context has ended.
func Cancelled(ctx context.Context, err error) error {
	return &ShortError{Text: ctx.Err().Error(), Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
}

// Where returns " at <endpoint>", or nothing for the cloud's own endpoint.
func (s *Service) Where() string {
	if s.Endpoint == "" {
		return ""
	}
	return " at " + s.Endpoint
}

func (s *Service) hint(err error) string {
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing answers" + s.Where() + "; is the server running, and the endpoint right?"
	case errors.As(err, &dns):
		return fmt.Sprintf("there is no host %q; check %s", dns.Name, s.Host)
	case errors.As(err, &authority):
		return "the server's certificate is not trusted" + s.Certificate
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the server speaks plain http; write endpoint=http://…"
	}
	return ""
}

// Login marks the errors of getting credentials, so that they can be told from answers of
// the store.
type Login struct {
	Driver string // the name of its package
	had    atomic.Bool
}

// Note records the result of getting credentials. It turns an error into a [LoginError].
func (l *Login) Note(err error) error {
	if err != nil {
		return &LoginError{Driver: l.Driver, Renewing: l.had.Load(), Err: err}
	}
	l.had.Store(true)
	return nil
}

// LoginError says that there are no credentials, so no request was sent.
type LoginError struct {
	Driver   string
	Renewing bool // there were some before
	Err      error
}

func (e *LoginError) Error() string {
	if e.Renewing {
		return e.Driver + ": renewing the credentials: " + e.Err.Error()
	}
	return e.Driver + ": no credentials: " + e.Err.Error()
}

// Unwrap returns the SDK's error.
func (e *LoginError) Unwrap() error { return e.Err }

// NonRetriable tells Azure's SDK not to retry.
func (e *LoginError) NonRetriable() {}
