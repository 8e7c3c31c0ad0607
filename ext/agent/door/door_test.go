package door_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/agent/door"
)

func check(d *door.Door, host, auth string) (int, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host = host
	r.Header.Set("Authorization", auth)
	return d.Check(r)
}

// guard:door-host. Without this check: a page on a foreign site names this machine in its DNS, and the browser sends it
// requests as to that site.
func TestDoorHost(t *testing.T) {
	d := &door.Door{Hosts: []string{"127.0.0.1", "::1", "lake.example"}}
	for host, want := range map[string]int{"127.0.0.1": 0, "127.0.0.1:80": 0, "[::1]:80": 0, "Lake.Example": 0, "": 421, "evil.example": 421, "evil.example:80": 421, "lake.example.evil": 421} {
		if got, err := check(d, host, ""); got != want || (err != nil) != (want != 0) {
			t.Errorf("%q: %d %v", host, got, err)
		}
	}
	if got, err := check(&door.Door{}, "evil.example", ""); got != 0 || err != nil {
		t.Errorf("no names: %d %v", got, err)
	}
}

// guard:door-token. Without this check: whoever reaches the port appends to the log, and reads it.
//
// A token that is replaced counts at once.
func TestDoorToken(t *testing.T) {
	token := ""
	d := &door.Door{Token: func() (string, error) {
		if token == "" {
			return "", errors.New("no such file")
		}
		return token, nil
	}}
	for _, c := range []struct{ has, sends, says string }{
		{"one", "", "Authorization is missing"},
		{"one", "one", "Authorization is missing"},
		{"one", "Bearer two", "the token is wrong"},
		{"one", "Bearer ", "the token is wrong"},
		{"one", "Bearer one", ""},
		{"two", "Bearer one", "the token is wrong"},
		{"two", "Bearer two", ""},
		{"", "Bearer ", "cannot be read"},
	} {
		token = c.has
		status, err := check(d, "any", c.sends)
		if want := map[bool]int{true: 0, false: 401}[c.says == ""]; status != want || c.says != "" && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %d %v", c, status, err)
		}
	}
}
