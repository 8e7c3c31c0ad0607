package files

import (
	"testing"

	"github.com/fencepost/fencepost/store"
)

// TestMarkOf: a mark is that of a log in a place on one server. A slash at the end of the address makes no other server, and a mark of
// an older version fits all.
func TestMarkOf(t *testing.T) {
	home := store.Traits{Name: "s3://bucket/log", Endpoint: "https://one:9000"}
	slash, other := home, home
	slash.Endpoint += "/"
	other.Endpoint = "https://two:9000"
	for _, c := range []struct {
		where string
		home  store.Traits
		want  bool
	}{
		{home.Where(), home, true},
		{home.Where(), slash, true},
		{slash.Where(), home, true},
		{home.Where(), other, false},
		{"", other, true},
		{home.Where(), store.Traits{Name: "s3://bucket/other", Endpoint: home.Endpoint}, false},
	} {
		if m := (Mark{Home: home.Name, Where: c.where}); m.Of(c.home) != c.want {
			t.Errorf("mark %q, home %q: %t", c.where, c.home.Where(), !c.want)
		}
	}
}
