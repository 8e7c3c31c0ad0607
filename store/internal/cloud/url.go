package cloud

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// Scheme describes the URLs of a driver: name://root/prefix?parameters.
type Scheme struct {
	Name string // such as "s3"
	Root string // what the first part names: "bucket"
	// Hint is how a URL names a host, for a user who wrote one in place of the root.
	Hint string
	// Endpoint is an example.
	Endpoint string
	// Credentials says where credentials belong, in place of the URL.
	Credentials string
}

// Invalid is the error of a driver's New.
func Invalid(name string, err error) error {
	return &store.Error{Op: "open", Key: name, Kind: store.ErrInvalid, Err: err}
}

// Faults are what is wrong with the options of a driver.
type Faults []error

// Need adds a fault unless ok.
func (f *Faults) Need(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, &ShortError{Text: fmt.Sprintf(format, args...), Err: store.ErrInvalid})
	}
}

// Err joins the faults. Each is a [store.ErrInvalid].
func (f Faults) Err() error { return errors.Join(f...) }

func (s *Scheme) example() string { return s.Name + "://" + s.Root + "/prefix" }

// check returns what is wrong with a URL, apart from its parameters.
func (s *Scheme) check(u *url.URL) error {
	switch {
	case u.User != nil:
		return errors.New("credentials do not belong into a URL; " + s.Credentials)
	case u.Opaque != "" || u.Fragment != "":
		return fmt.Errorf("not a URL of scheme %s; write %s", s.Name, s.example())
	case u.Host == "":
		return fmt.Errorf("the %s is missing; write %s", s.Root, s.example())
	case strings.Contains(u.Host, ":"):
		return s.NotAHost()
	}
	return nil
}

// NotAHost is the error of a host where the root should be.
func (s *Scheme) NotAHost() error {
	return fmt.Errorf("what follows %s:// is a %s, not a host; write %s%s", s.Name, s.Root, s.example(), s.Hint)
}

// CheckEndpoint parses the URL of a service, or returns what is wrong with it.
func (s *Scheme) CheckEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") || u.Host == "": // in small letters, as drivers look for them
		return nil, errors.New("the endpoint is not a URL such as " + s.Endpoint)
	case u.User != nil:
		return nil, errors.New("credentials do not belong into the endpoint; " + s.Credentials)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the endpoint has no parameters of its own; if one was meant for the store, write & for ? before it; for credentials " + s.Credentials)
	}
	return u, nil
}

// Parameter takes the value of a parameter into a T. Its error says what a value is,
// such as "true or false".
type Parameter[T any] func(t *T, value string) error

// Parse checks a URL and reads its parameters into t. Each must be known, come once, and not
// be empty.
func Parse[T any](s *Scheme, u *url.URL, t *T, known map[string]Parameter[T]) error {
	if err := s.check(u); err != nil {
		return err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the parameters after ? cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set, ok := known[name]
		switch {
		case !ok:
			return fmt.Errorf("unknown parameter %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case len(query[name]) > 1:
			return fmt.Errorf("parameter %q is given twice", name)
		case query[name][0] == "":
			return fmt.Errorf("parameter %q is empty", name)
		}
		if err := set(t, query[name][0]); err != nil {
			return fmt.Errorf("parameter %q is %w, not %q", name, err, query[name][0])
		}
	}
	return nil
}

// Bool is the value of a parameter that is true or false.
func Bool(value string) (bool, error) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("true or false")
	}
	return b, nil
}

// Bytes is the value of a parameter that is a positive number of bytes.
func Bytes(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 {
		return 0, errors.New("a number of bytes")
	}
	return n, nil
}
