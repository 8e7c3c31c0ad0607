package session_test

import (
	"io"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/agent/session"
)

// BenchmarkLines is what a record costs that comes as a line of JSON.
func BenchmarkLines(b *testing.B) {
	l := session.NewLines(strings.NewReader(strings.Repeat(`{"text":"`+strings.Repeat("x", 100)+`","cursor":"123456"}`+"\n", b.N)), io.Discard)
	for range b.N {
		if _, err := l.Receive(); err != nil {
			b.Fatal(err)
		}
	}
}
