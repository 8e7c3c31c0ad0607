// Package door decides which HTTP requests are served where other machines, or browsers on this one, can reach a server.
package door

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Door lets requests in. The zero value lets in all.
type Door struct {
	// Hosts are the values of the header Host that are served, without a port; none: any. A browser that was led to
	// this machine by a foreign name (DNS rebinding) names that one.
	Hosts []string
	// Token returns the bearer token that each request must have. It is called for each, so that a token may be
	// replaced at any time. nil: none is needed.
	Token func() (string, error)
}

// Check returns nil if r is let in. Otherwise it returns the status of the answer, and why.
func (d *Door) Check(r *http.Request) (status int, err error) {
	if !d.knows(r.Host) {
		return http.StatusMisdirectedRequest, fmt.Errorf("the host %.100q is not served here; name it with --host", r.Host)
	}
	if err := d.allows(r); err != nil {
		return http.StatusUnauthorized, err
	}
	return 0, nil
}

// knows reports whether a Host is served.
//
// guard:door-host. A request is served only if its Host was named, where names were given.
//
//mutant:replace len(d.Hosts) == 0 => len(d.Hosts) >= 0
func (d *Door) knows(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return len(d.Hosts) == 0 || slices.ContainsFunc(d.Hosts, func(known string) bool { return strings.EqualFold(known, strings.Trim(host, "[]")) })
}

// allows checks the token.
//
// guard:door-token. Where there is a token, a request without it is refused.
//
//mutant:replace subtle.ConstantTimeCompare([]byte(want), []byte(got)) != 1 => subtle.ConstantTimeCompare([]byte(want), []byte(got)) > 1
func (d *Door) allows(r *http.Request) error {
	if d.Token == nil {
		return nil
	}
	want, err := d.Token()
	if err != nil || want == "" {
		return errors.Join(errors.New("the token of this server cannot be read, so nobody is served; repair its file"), err)
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return errors.New("the header Authorization is missing; send Bearer and the token of the server's file")
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(got)) != 1 {
		return errors.New("the token is wrong; read it again, since it may have been replaced")
	}
	return nil
}
